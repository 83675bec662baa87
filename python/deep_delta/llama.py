"""Delta connections in the Llama models of transformers."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn as nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaModel

from deep_delta.connection import Connection, Readout, expand

__all__ = ["patch_llama"]


class DeltaLayer(LlamaDecoderLayer):  # type: ignore[misc]
    """A layer on the state X (B, T, d, c) with the modules of a LlamaDecoderLayer, under the same names. The first one
    gets the embedding x (B, T, d).
    """

    def __init__(self, layer: LlamaDecoderLayer, width: int, channels: int, index: int, **options: Any) -> None:
        nn.Module.__init__(self)
        for name, child in layer.named_children():
            self.add_module(name, child)
        self.channels = channels
        self.connections = nn.ModuleList(
            Connection(width, channels, norm=nn.Identity(), index=2 * index + i, **options) for i in range(2))
        state = vars(layer)
        for name in ("gradient_checkpointing", "_gradient_checkpointing_func"):
            if name in state:
                setattr(self, name, state[name])
        if "_hf_hook" in state:  # of accelerate: moves what the layer reads to its device
            from accelerate.hooks import add_hook_to_module

            add_hook_to_module(self, state["_hf_hook"])

    def forward(self, hidden_states: torch.Tensor, **options: Any) -> torch.Tensor:
        """X -> X', with the arguments of LlamaDecoderLayer.forward"""
        X = expand(hidden_states, self.channels) if hidden_states.ndim == 3 else hidden_states
        connections: Any = self.connections
        attention, mlp = connections
        x_in, state = attention.read(X)
        ctx = self.input_layernorm(x_in)
        X = attention.write(state, self.self_attn(hidden_states=ctx, **options)[0], ctx)
        x_in, state = mlp.read(X)
        ctx = self.post_attention_layernorm(x_in)
        written: torch.Tensor = mlp.write(state, self.mlp(ctx), ctx)
        return written


class DeltaNorm(nn.Module):
    """The readout of the last state (B, T, d, c), then the model's last norm: (B, T, d)"""

    def __init__(self, norm: nn.Module, readout: Readout) -> None:
        super().__init__()
        self.norm, self.readout = norm, readout

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """X (B, T, d, c) -> x (B, T, d)"""
        x: torch.Tensor = self.norm(self.readout(X))
        return x


def patch_llama(model: nn.Module, c: int = 4, **options: Any) -> nn.Module:
    """Replaces the residual connections of a LlamaModel or LlamaForCausalLM by delta connections with c channels, in
    place, and returns the model. The options are those of Connection.

    Modules keep their parameters, under the same names except the last norm's (norm.norm.weight). The result is a model
    to be trained: the connections have their initial values. disable=True gives the model's own output. ddl_compress is
    "channel" (default) or "mix": the cache of generate() has no earlier states, which "token" reads.
    """
    options.setdefault("ddl_compress", "channel")
    if options["ddl_compress"] == "token" and c > 1:
        raise ValueError("ddl_compress: expected channel or mix, found 'token'")
    body = model.get_submodule("model") if hasattr(model, "model") else model
    if not isinstance(body, LlamaModel):
        raise TypeError(f"model: expected a LlamaModel or LlamaForCausalLM, found {type(model).__name__}")
    if isinstance(body.norm, DeltaNorm):
        raise ValueError("model: it has delta connections already")
    if options.get("fused") == "release" and any(layer.gradient_checkpointing for layer in body.layers):
        raise ValueError("fused: expected yes or no with gradient checkpointing, found 'release'")
    width = body.config.hidden_size
    like = next(body.parameters())
    device = like.device
    for i, layer in enumerate(body.layers):
        device = next(layer.parameters()).device
        patched = DeltaLayer(layer, width, c, i, **options)
        patched.connections.to(device, like.dtype)
        body.layers[i] = patched.train(layer.training)
    # The readout is a Reader: it takes neither the rule's options nor `fused`.
    read = {key: value for key, value in options.items() if key != "fused"}
    body.norm = DeltaNorm(body.norm, Readout(width, c, **read).to(device, like.dtype)).train(body.training)
    return model
