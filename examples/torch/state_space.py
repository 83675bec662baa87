"""Diagonal state-space blocks with delta connections, on the characters of a text:
python3 state_space.py TEXT [STEPS [CHANNELS]]
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import toy

import deep_delta as dd


class StateSpace(nn.Module):
    """h_t = exp(-dt a) h_(t-1) + u_t for n numbers of each feature, y = c'h + D u, by a convolution over time; a gate."""

    def __init__(self, d, n=8):
        super().__init__()
        self.a = nn.Parameter(torch.arange(1.0, n + 1).log().repeat(d, 1))
        self.dt = nn.Parameter(torch.linspace(-5, -1, d)[:, None])
        self.c, self.D = nn.Parameter(torch.randn(d, n) / n), nn.Parameter(torch.ones(d))
        self.enter, self.out = nn.Linear(d, 2 * d), nn.Linear(d, d)

    def forward(self, x):
        u, gate = self.enter(x).chunk(2, -1)
        T = x.shape[1]
        rate = (self.dt + self.a).exp()
        kernel = (self.c[..., None] * torch.exp(-rate[..., None] * torch.arange(T, device=x.device))).sum(1)
        spectrum = torch.fft.rfft(u.transpose(1, 2), 2 * T) * torch.fft.rfft(kernel, 2 * T)
        y = torch.fft.irfft(spectrum, 2 * T)[..., :T].transpose(1, 2) + self.D * u
        return self.out(y * F.silu(gate))


class Model(nn.Module):
    def __init__(self, vocabulary, d=64, layers=4, channels=4, **options):
        super().__init__()
        self.channels, self.tokens = channels, nn.Embedding(vocabulary, d)
        self.steps = nn.ModuleList(dd.wrap(StateSpace(d), d, channels, index=i, **options) for i in range(layers))
        self.readout, self.norm = dd.Readout(d, channels, **options), nn.LayerNorm(d)
        self.head = nn.Linear(d, vocabulary)

    def forward(self, ids):
        X = dd.expand(self.tokens(ids), self.channels)
        for step in self.steps:
            X = step(X)
        return self.head(self.norm(self.readout(X)))


if __name__ == "__main__":
    toy.compare(lambda channels, disable: Model(256, channels=channels, disable=disable))
