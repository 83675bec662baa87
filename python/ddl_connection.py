"""Residual connections by the delta rule for other PyTorch models. Needs torch and ddl_torch.py beside this file.

A connection replaces the addition around a sublayer by a rule of ddl_torch, in two calls:

    connection = Connection(512, channels=4, norm=norm)    # one for each sublayer
    x_in, state = connection.read(X)                       # X (B, T, d, c) -> the sublayer's input x_in (B, T, d)
    X = connection.write(state, f(norm(x_in)))             # its output enters the state

before the first sublayer X = expand(x, c), after the last x = Readout(d, c)(X). examples/connection.py wraps a plain
Transformer. The keywords are the keys of ddl's config.json, for example ddl_map, ddl_update, ddl_steps, ddl_compress.
"""
from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn as nn

from ddl_torch import RULES, Compressor, Config, Mixing, Norm, initialize, normalized, read, write


class State(NamedTuple):
    """What write needs of read."""

    X: torch.Tensor  # (B, T, d, c)
    x_in: torch.Tensor  # (B, T, d)
    mixing: Mixing | None  # of rules with streams


def expand(x: torch.Tensor, channels: int) -> torch.Tensor:
    """The first state: x (B, T, d) in each of the channels, (B, T, d, c)."""
    return x[..., None].expand(*x.shape, channels)


def configuration(width: int, channels: int, rule: str, options: dict) -> Config:
    if rule not in RULES or rule == "attnres":  # attnres reads the outputs of other sublayers
        rules = ", ".join(name for name in RULES if name != "attnres")
        raise ValueError(f"rule: expected one of {rules}, found {rule!r}")
    options = {"head_dim": 1} | options  # there is no attention
    if rule in ("hyper", "mhc"):
        return Config(hidden_size=width, ddl_residual=rule, ddl_streams=channels, **options)
    if channels > 1 and rule != "delta":
        raise ValueError(f"channels: expected 1 for the rule {rule}, found {channels}")
    return Config(hidden_size=width, ddl_residual=rule, ddl_value_channels=channels, **options)


class Reader(Compressor):
    """The state (B, T, d, c) read down to (B, T, d). Sublayers may share one, as those of a block of ddl do."""

    def __init__(self, width: int, channels: int, **options) -> None:
        cfg = configuration(width, channels, "delta", options)
        super().__init__(cfg)
        for name, parameter in self.named_parameters():
            initialize(cfg, "compress." + name, parameter)


class Readout(nn.Module):
    """The last state (B, T, d, c) -> (B, T, d): a Reader, or the sum of the streams of the rules hyper and mhc.
    disable: as for the connections before it."""

    def __init__(self, width: int, channels: int = 1, rule: str = "delta", disable: bool = False, **options) -> None:
        super().__init__()
        self.disable = disable
        if disable:
            return
        if rule not in ("hyper", "mhc") and channels > 1:
            self.reader = Reader(width, channels, **options)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        if self.disable:
            return X[..., 0]
        return self.reader(X) if hasattr(self, "reader") else X.sum(-1)


class Connection(nn.Module):
    """One sublayer's residual connection.

    width d and channels c of the state (B, T, d, c); for the rules hyper and mhc c is the number of streams.
    norm: the module that the sublayer applies to x_in; the gate reads its output. Default: an RMS norm of its own, for
        rules with a gate (delta, gated, highway).
    reader: the Reader of x_in for c > 1. Default: one of its own.
    index: counts the sublayers from 0; the rule hyper starts with stream index mod c.
    disable: the plain residual X + f instead, for comparisons; the state keeps its shape, with equal channels.
    A sublayer outputs f (B, T, d), or (B, T, R d) with ddl_steps=R."""

    def __init__(self, width: int, channels: int = 1, rule: str = "delta", norm: nn.Module | None = None,
                 reader: nn.Module | None = None, index: int = 0, disable: bool = False, **options) -> None:
        super().__init__()
        cfg = configuration(width, channels, rule, options)
        self.disable = disable
        self.norm = norm
        if disable:
            return
        prefix, kind = RULES[rule]
        self.rule = kind(cfg)
        for name, parameter in self.rule.named_parameters():
            initialize(cfg, f"transformer.h.{index // 2}.{prefix}_{('attn', 'mlp')[index % 2]}.{name}", parameter)
        self.reader, self.normalizes_f = reader, cfg.normalizes_f(0)
        self.has_gate = rule in ("delta", "gated", "highway")
        if norm is None and self.has_gate:
            self.norm = Norm(width)
            nn.init.ones_(self.norm.weight)
        if reader is None and channels > 1 and not hasattr(self.rule, "mixing"):
            self.reader = Reader(width, channels, **options)

    def read(self, X: torch.Tensor) -> tuple[torch.Tensor, State]:
        """X (B, T, d, c) -> the sublayer's input (B, T, d), before its norm, and what write needs"""
        if self.disable:
            return X[..., 0], State(X, X[..., 0], None)
        x_in, mixing = read(X, self.rule, self.reader)
        return x_in, State(X, x_in, mixing)

    def write(self, state: State, f: torch.Tensor, ctx: torch.Tensor | None = None) -> torch.Tensor:
        """The state of read and the sublayer's output -> the next state (B, T, d, c). ctx: the norm of x_in, if known"""
        if self.disable:
            return state.X + f[..., None]
        f = normalized(f) if self.normalizes_f else f
        if ctx is None:
            ctx = self.norm(state.x_in) if self.has_gate else state.x_in
        return write(state.X, self.rule, state.x_in, state.mixing, ctx, f)

    def forward(self, X: torch.Tensor, sublayer) -> torch.Tensor:
        """Both calls around sublayer, a function of x_in."""
        x_in, state = self.read(X)
        return self.write(state, sublayer(x_in))
