"""One delta step as an autograd function.

It saves the next state, k, beta and the error e (B, T, c), from which the backward pass computes the state before the
step, X = X' - k (beta e)'. With `release` the memory of X is freed as soon as X' exists, and filled again in the backward
pass before the operations that read X need it: a stack of steps holds one state instead of one per step. On CUDA devices the arithmetic is one Triton
kernel in each direction (triton_delta.py). It has first derivatives only: second ones need fused="no".
"""
from __future__ import annotations

from typing import Any, Callable

import torch
from ddl_torch import without_autocast
from torch.autograd.function import once_differentiable

Step = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, str], torch.Tensor]


def wide(x: torch.Tensor) -> torch.Tensor:
    """X in float32, or as it is in float64."""
    return x if x.dtype == torch.float64 else x.float()


def plain_forward(X: torch.Tensor, k: torch.Tensor, beta: torch.Tensor, v: torch.Tensor,
                  update: str) -> tuple[torch.Tensor, torch.Tensor]:
    """X', and the error whose multiple by beta is written: (B, T, c)"""
    with without_autocast(X):
        readout = torch.einsum("...d,...dc->...c", k, wide(X))
    error = v - readout if update == "delta" else v.clone() if update == "write" else -readout
    return X + (k[..., None] * (beta * error)[..., None, :]).to(X.dtype), error


def plain_rebuild(X_next: torch.Tensor, k: torch.Tensor, beta: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
    """X = X' - k delta'"""
    return X_next - (k[..., None] * (beta * error)[..., None, :]).to(X_next.dtype)


def plain_backward(dX_next: torch.Tensor, X: torch.Tensor, k: torch.Tensor, beta: torch.Tensor, error: torch.Tensor,
                   update: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The gradients of X, k, beta and v"""
    dX_wide = wide(dX_next)
    with without_autocast(X):
        ddelta = torch.einsum("...d,...dc->...c", k, dX_wide)
        dk = torch.einsum("...dc,...c->...d", dX_wide, beta * error)
        dbeta = (ddelta * error).sum(-1, keepdim=True)
        dv = None if update == "erase" else beta * ddelta
        if update == "write":
            return dX_next, dk, dbeta, dv
        dreadout = -beta * ddelta
        dk = dk + torch.einsum("...dc,...c->...d", wide(X), dreadout)
        return (dX_wide + k[..., None] * dreadout[..., None, :]).to(dX_next.dtype), dk, dbeta, dv


class DeltaStep(torch.autograd.Function):
    """X' = X + beta k (v - k'X)', or of the updates "write" (v) and "erase" (-k'X)."""

    @staticmethod
    def forward(ctx: Any, X: torch.Tensor, k: torch.Tensor, beta: torch.Tensor, v: torch.Tensor, update: str,
                release: bool) -> torch.Tensor:
        """X (B, T, d, c), k (B, T, d), beta (B, T, 1), v (B, T, c) -> X' (B, T, d, c)"""
        if X.is_cuda:
            from deep_delta import triton_delta

            X_next, error = triton_delta.forward(X, k, beta, v, update)
        else:
            X_next, error = plain_forward(X, k, beta, v, update)
        ctx.update, ctx.release = update, release
        ctx.save_for_backward(k, beta, error, X_next)
        if release:
            # Shares X's memory, and not its count of changes: to autograd X stays what it was.
            ctx.before = X.data
            ctx.bytes = X.untyped_storage().nbytes()
            X.untyped_storage().resize_(0)
        return X_next

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """DX' -> dX, dk, dbeta, dv"""
        dX_next, = gradients
        k, beta, error, X_next = ctx.saved_tensors
        if dX_next.is_cuda:
            from deep_delta import triton_delta

            X, *rest = triton_delta.backward(dX_next, X_next, k, beta, error, ctx.update)
            grads = tuple(rest)
        else:
            X = plain_rebuild(X_next, k, beta, error)
            grads = plain_backward(dX_next, X, k, beta, error, ctx.update)
        if ctx.release:
            ctx.before.untyped_storage().resize_(ctx.bytes)
            ctx.before.copy_(X)
        return (*grads, None, None)


def delta_step(X: torch.Tensor, k: torch.Tensor, beta: torch.Tensor, v: torch.Tensor,
               update: str = "delta") -> torch.Tensor:
    """X (B, T, d, c), k (B, T, d), beta (B, T, 1), v (B, T, c) -> X' (B, T, d, c), by DeltaStep."""
    result: torch.Tensor = DeltaStep.apply(X, k, beta, v, update, False)
    return result


def delta_step_released(X: torch.Tensor, k: torch.Tensor, beta: torch.Tensor, v: torch.Tensor,
                        update: str = "delta") -> torch.Tensor:
    """The same. If X is the result of a delta step, its memory is free until the backward pass: nothing may read X
    after this step, except autograd. Not for torch.compile or gradient checkpointing.
    """
    release = torch.is_grad_enabled() and type(X.grad_fn).__name__ == "DeltaStepBackward"
    result: torch.Tensor = DeltaStep.apply(X, k, beta, v, update, release)
    return result
