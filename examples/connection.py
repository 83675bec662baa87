"""A plain PyTorch Transformer, with additions and with delta connections (python/ddl_connection.py), on a toy task.

    python3 examples/connection.py [STEPS [CHANNELS]]

Both models learn to repeat the first half of a random sequence. The loss counts the second half only.
"""
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
from ddl_connection import Connection, Readout, expand

VOCABULARY, WIDTH, HEADS, LAYERS, HALF = 16, 64, 4, 2, 8


class Layer(nn.Module):
    """Attention and MLP, each behind its norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        h, T = self.norms[0](x), x.shape[1]
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        return self.attention(h, h, h, attn_mask=future, need_weights=False)[0]

    def think(self, x: torch.Tensor) -> torch.Tensor:
        return self.mlp(self.norms[1](x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(x)
        return x + self.think(x)


# The same layers with delta connections instead of the additions.
class DeltaLayers(nn.Module):
    def __init__(self, layers: nn.ModuleList, channels: int) -> None:
        super().__init__()
        self.layers, self.channels, self.readout = layers, channels, Readout(WIDTH, channels)
        self.connections = nn.ModuleList(Connection(WIDTH, channels, norm=n) for layer in layers for n in layer.norms)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        X = expand(x, self.channels)
        for i, sublayer in enumerate(f for layer in self.layers for f in (layer.attend, layer.think)):
            x_in, state = self.connections[i].read(X)
            X = self.connections[i].write(state, sublayer(x_in))
        return self.readout(X)


class Model(nn.Module):
    def __init__(self, channels: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(2 * HALF, WIDTH))
        layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.body = DeltaLayers(layers, channels) if channels else nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.body(self.embedding(tokens) + self.positions[: tokens.shape[1]])))


def train(model: nn.Module, steps: int) -> tuple[float, float]:
    """The losses of the first and of the last step."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=2e-3), []
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        first = torch.randint(0, VOCABULARY, (32, HALF), generator=generator)
        tokens = torch.cat([first, first], dim=1)
        logits = model(tokens[:, :-1])[:, HALF - 1 :]
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, HALF:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    channels = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    for name, c in (("additions", 0), ("delta connections", channels)):
        torch.manual_seed(0)
        model = Model(c)
        start, end = train(model, steps)
        count = sum(p.numel() for p in model.parameters())
        print(f"{name:18s} {count:7d} parameters  loss {start:.4f} at step 1, {end:.4f} at step {steps}")


if __name__ == "__main__":
    main()
