"""Residual connections for PyTorch models: ddl_connection's modules, and what the package adds to them."""
from __future__ import annotations

import os
from typing import Any

import ddl_torch
import torch
import torch.nn as nn
from ddl_connection import Connection as PlainConnection
from ddl_connection import Reader, Readout, State, expand

from deep_delta import fused

__all__ = ["Connection", "Reader", "Readout", "State", "expand", "load", "wrap"]


class Connection(PlainConnection):  # type: ignore[misc]
    """One sublayer's residual connection: ddl_connection.Connection, whose arguments it takes, with the delta step as
    one autograd function (deep_delta.fused), which has first derivatives only.

    fused: "yes" (default), which keeps the next state and the step's error (B, T, c) for the backward pass; "release",
    which also frees the memory of the state before each step and rebuilds it, so that a stack holds one state, not for
    torch.compile or gradient checkpointing; "no", autograd through plain operations, also for second derivatives. Other
    rules than delta have plain operations only.
    """

    def __init__(self, width: int, channels: int = 1, rule: str = "delta", *, fused: str = "yes", **options: Any) -> None:
        super().__init__(width, channels, rule, **options)
        if fused not in STEPS:
            raise ValueError(f"fused: expected one of {', '.join(STEPS)}, found {fused!r}")
        if rule == "delta" and not self.disable:
            self.rule.fused = STEPS[fused]
        self.releases = rule == "delta" and not self.disable and fused == "release"

    def read(self, X: torch.Tensor) -> tuple[torch.Tensor, State]:
        """X (B, T, d, c) -> the sublayer's input (B, T, d), before its norm, and what write needs"""
        if self.releases and X.numel() and not X.untyped_storage().nbytes():
            raise RuntimeError('X: the step after it has released its memory; with gradient checkpointing use fused="yes"')
        result: tuple[torch.Tensor, State] = super().read(X)
        return result


STEPS: dict[str, fused.Step | None] = {"yes": fused.delta_step, "release": fused.delta_step_released, "no": None}


class Wrapped(nn.Module):
    """A branch with its norm and its connection: X (B, T, d, c) -> X' (B, T, d, c)."""

    def __init__(self, branch: nn.Module, norm: nn.Module, connection: Connection) -> None:
        super().__init__()
        self.branch, self.norm, self.connection = branch, norm, connection

    def forward(self, X: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The branch gets the normalized x_in (B, T, d) and what follows X; it returns f, or a tuple that starts with f"""
        x_in, state = self.connection.read(X)
        f = self.branch(self.norm(x_in), *args, **kwargs)
        out: torch.Tensor = self.connection.write(state, f[0] if isinstance(f, tuple) else f)
        return out


def wrap(branch: nn.Module, width: int, channels: int = 1, rule: str = "delta", norm: nn.Module | None = None,
         **options: Any) -> Wrapped:
    """A branch F, a module (B, T, d) -> (B, T, d), as a residual step of the state. norm: what is applied to its input
    before (default: nn.RMSNorm-like, ddl_torch.Norm); the options are those of Connection.
    """
    if norm is None:
        norm = ddl_torch.Norm(width)
        nn.init.ones_(norm.get_parameter("weight"))
    return Wrapped(branch, norm, Connection(width, channels, rule, norm=norm, **options))


def load(folder: str | os.PathLike[str], which: str | int = "last", **options: Any) -> nn.Module:
    """A model folder or a run as a PyTorch module, tokens (B, T) -> logits (B, T, V): ddl_torch.load, whose options
    it takes (dtype, device, ignore_extra).
    """
    model: nn.Module = ddl_torch.load(folder, which=str(which), **options)
    return model
