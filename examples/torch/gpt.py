"""A GPT as of nanoGPT with delta connections, on the characters of a text: python3 gpt.py TEXT [STEPS [CHANNELS]]"""
import torch.nn as nn
import torch.nn.functional as F
import toy

import deep_delta as dd


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = (h.unflatten(-1, (self.heads, -1)).transpose(1, 2) for h in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class GPT(nn.Module):
    def __init__(self, vocabulary, d=64, heads=4, layers=3, context=64, channels=4, **options):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, d), nn.Embedding(context, d)
        branches = [f for _ in range(layers) for f in (
            Attention(d, heads), nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)))]
        self.steps = nn.ModuleList(dd.wrap(f, d, channels, index=i, **options) for i, f in enumerate(branches))
        self.readout, self.channels = dd.Readout(d, channels, **options), channels
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary)

    def forward(self, ids):
        X = dd.expand(self.tokens(ids) + self.positions.weight[:ids.shape[1]], self.channels)
        for step in self.steps:
            X = step(X)
        return self.head(self.norm(self.readout(X)))


if __name__ == "__main__":
    toy.compare(lambda channels, disable: GPT(256, channels=channels, disable=disable))
