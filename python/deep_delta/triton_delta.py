"""One delta step on CUDA devices: a Triton kernel for each direction, a row (token) per program.

The arithmetic is float32, whatever the format of X. Sizes d and c are padded to powers of two inside a program.
TRITON_INTERPRET=1 runs the kernels without a GPU, as the tests do.
"""
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

UPDATES = {"delta": 0, "write": 1, "erase": 2}


@triton.jit  # type: ignore[untyped-decorator]
def forward_kernel(X, k, beta, v, X_next, error, d, c, UPDATE: tl.constexpr, D: tl.constexpr,  # type: ignore[no-untyped-def]
                   C: tl.constexpr):
    """Row n: X (d, c), k (d), beta, v (c) -> X_next (d, c), error (c)"""
    row = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, D), tl.arange(0, C)
    at = row * d * c + i[:, None] * c + j[None, :]
    inside = (i[:, None] < d) & (j[None, :] < c)
    x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    direction = tl.load(k + row * d + i, mask=i < d, other=0.0)
    readout = tl.sum(direction[:, None] * x, 0)
    target = tl.load(v + row * c + j, mask=j < c, other=0.0)
    e = target - readout if UPDATE == 0 else target if UPDATE == 1 else -readout
    written = (direction[:, None] * (tl.load(beta + row) * e)[None, :]).to(X.dtype.element_ty)
    tl.store(X_next + at, (x + written.to(tl.float32)).to(X_next.dtype.element_ty), mask=inside)
    tl.store(error + row * c + j, e, mask=j < c)


@triton.jit  # type: ignore[untyped-decorator]
def backward_kernel(dX_next, X_next, k, beta, error, X, dX, dk, dbeta, dv, d, c,  # type: ignore[no-untyped-def]
                    UPDATE: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    """Row n: rebuilds X (d, c); dX (d, c), dk (d), dbeta, dv (c) from dX_next (d, c)"""
    row = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, D), tl.arange(0, C)
    at = row * d * c + i[:, None] * c + j[None, :]
    inside = (i[:, None] < d) & (j[None, :] < c)
    direction = tl.load(k + row * d + i, mask=i < d, other=0.0)
    e = tl.load(error + row * c + j, mask=j < c, other=0.0)
    b = tl.load(beta + row)
    delta = b * e
    written = (direction[:, None] * delta[None, :]).to(X.dtype.element_ty).to(tl.float32)
    x = (tl.load(X_next + at, mask=inside, other=0.0).to(tl.float32) - written).to(X.dtype.element_ty)
    tl.store(X + at, x, mask=inside)
    dx = tl.load(dX_next + at, mask=inside, other=0.0).to(tl.float32)
    ddelta = tl.sum(direction[:, None] * dx, 0)
    ddirection = tl.sum(dx * delta[None, :], 1)
    tl.store(dbeta + row, tl.sum(ddelta * e, 0))
    if UPDATE != 2:
        tl.store(dv + row * c + j, b * ddelta, mask=j < c)
    if UPDATE != 1:
        dreadout = -b * ddelta
        ddirection += tl.sum(x.to(tl.float32) * dreadout[None, :], 1)
        dx += direction[:, None] * dreadout[None, :]
    tl.store(dk + row * d + i, ddirection, mask=i < d)
    tl.store(dX + at, dx.to(dX.dtype.element_ty), mask=inside)


def sizes(X: torch.Tensor) -> tuple[int, int, int, dict[str, Any]]:
    """Rows, d, c of X (..., d, c), and the kernels' constants."""
    d, c = X.shape[-2:]
    return X.numel() // (d * c), d, c, {"D": triton.next_power_of_2(d), "C": triton.next_power_of_2(c)}


def forward(X: torch.Tensor, k: torch.Tensor, beta: torch.Tensor, v: torch.Tensor,
            update: str) -> tuple[torch.Tensor, torch.Tensor]:
    """X (..., d, c), k (..., d), beta (..., 1), v (..., c) -> X', error (..., c)"""
    X, k, beta, v = X.contiguous(), k.float().contiguous(), beta.float().contiguous(), v.float().contiguous()
    rows, d, c, constants = sizes(X)
    X_next, error = torch.empty_like(X), torch.empty_like(v)
    with torch.cuda.device(X.device if X.is_cuda else -1):  # Triton launches on the current device
        forward_kernel[(rows,)](X, k, beta, v, X_next, error, d, c, UPDATE=UPDATES[update], **constants)
    return X_next, error


def backward(dX_next: torch.Tensor, X_next: torch.Tensor, k: torch.Tensor, beta: torch.Tensor, error: torch.Tensor,
             update: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """dX', X' (..., d, c) and what forward had -> X, dX, dk, dbeta, dv"""
    dX_next, k, beta = dX_next.contiguous(), k.float().contiguous(), beta.float().contiguous()
    rows, d, c, constants = sizes(X_next)
    X, dX = torch.empty_like(X_next), torch.empty_like(dX_next)
    dk, dbeta, dv = torch.empty_like(k), torch.empty_like(beta), torch.empty_like(error)
    with torch.cuda.device(X.device if X.is_cuda else -1):
        backward_kernel[(rows,)](dX_next, X_next, k, beta, error, X, dX, dk, dbeta, dv, d, c, UPDATE=UPDATES[update],
                                 **constants)
    return X, dX, dk, dbeta, None if update == "erase" else dv
