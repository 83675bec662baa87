"""Models of `ddl` in PyTorch. One file, needs nothing but torch (2.4 or newer).

    import ddl_torch
    model = ddl_torch.load("my/run")              # a folder that ddl wrote, or the authors' release
    model.folder                                  # of a run: the saved model that was loaded, "my/run/checkpoint-400"
    logits = model(tokens)                        # (B, T) int64 -> (B, T, vocab_size)
    loss = model.loss(tokens, targets)            # mean cross-entropy; target -1 is ignored
    past = ddl_torch.Past()                       # decoding: model(prompt, past), then model(next_tokens, past), ...
    ddl_torch.save(model, "my/copy")              # a folder that ddl and the authors' release read

The model is a plain nn.Module: parameters carry the names of the authors' release, and autograd and torch.compile
work. Every step is a module that hooks can watch or replace. The rule of a sublayer, for example
transformer.h[3].ddl_mlp, has submodules without parameters whose outputs are the values of the update:
.direction k (B, T, d), .target v (B, T, c), .gate beta (B, T, 1), .readout k'X (B, T, c); a highway rule has
.gate tau (B, T, 1 or d), and a hyper or mhc rule has .weights, the mixing weights. With ddl_steps R, .target is
(B, T, R c) and .gate (B, T, R), while .direction and .readout are called once a step. Model(Config(...)) starts with
the initial values of docs/formats.md.

A run folder has several saved models; load takes the newest, or which="best" (lowest validation loss), "final" or a
step, by the rules of docs/formats.md. A corrupted checkpoint is skipped with a warning of the logger "ddl_torch"; the
checksums of other models (checksums.json) are not compared.

    python3 ddl_torch.py info DIR                 what a folder holds [--which last|best|final|STEP]
    python3 ddl_torch.py convert DIR OUT          the same model with model.safetensors [--dtype f32|bf16|f16]
"""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import logging
import math
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

LOG = logging.getLogger("ddl_torch")

# ---- configuration ---------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Config:
    """The keys of config.json; those after the line are ddl's own and are stored in the tensors' metadata."""

    vocab_size: int = 50304
    num_hidden_layers: int = 12
    num_attention_heads: int = 6
    hidden_size: int = 768
    head_dim: int = 0  # 0: hidden_size / num_attention_heads
    block_size: int = 1024
    rope_base: float = 10000.0
    rope_ratio: float = 1.0
    use_qk_rmsnorm: bool = True
    embedding_init_std: float = 0.02
    hidden_init_std_factor: float = 0.5
    mup: bool = False
    hidden_size_base: int = 1024
    ddl_value_channels: int = 1
    ddl_state_shortconv_kernel_size: int = 0  # 0: 4 for token, c for channel
    ddl_state_read_init: float = 0.0  # 0: 1/c
    input_embed_shortconv_kernel_size: int = 4
    ddl_k_eps: float = 1e-5
    ddl_beta_single_linear: bool = True
    ddl_beta_hidden_size: int = 128
    ddl_beta_init: float = 1.0
    ddl_v_sigmoid: bool = True
    ddl_v_sigmoid_scale: float = 4.0
    ddl_v_constant: bool = False
    ddl_v_constant_value: float = 2.0
    # ---- our own
    ddl_residual: str = "add"  # add | delta | scale | gated | highway | laurel | hyper | mhc | attnres
    ddl_map: str = "k"  # k: the sublayer's output is the direction; v: it is the target
    ddl_k_rank: int = 0  # v-map: rank of the direction's map, 0 is full
    ddl_update: str = "delta"  # delta | write | erase
    ddl_v_input: str = "stream"  # k-map: the target reads the stream or the context
    ddl_compress: str = "token"  # c > 1: token | channel | mix
    ddl_embed: str = "repeat"  # c > 1: repeat | conv
    ddl_per_feature: bool = False  # scale, highway: one number for each feature
    ddl_scale_init: float = 1.0
    ddl_highway_init: float = 0.1
    ddl_laurel_rank: int = 0  # laurel: rank of the learned map added to the identity, 0: none
    ddl_streams: int = 4  # hyper, mhc: streams n
    ddl_hyper_dynamic: bool = True  # hyper: mixing weights depend on the token
    ddl_sinkhorn_iterations: int = 20  # mhc
    ddl_steps: int = 1  # delta, k-map: steps of a sublayer
    dense_average: bool = False  # after blocks the stream becomes a weighted sum of the states so far
    dense_dilation: int = 1  # of the states at distances that are multiples of this
    dense_period: int = 1  # after every such block
    value_residual: bool = False  # attention mixes its values with those of layer 0
    ddl_beta_constant: bool = False  # delta, gated: the gate is ddl_beta_constant_value for every token
    ddl_beta_constant_value: float = 1.0
    ddl_beta_max: float = 2.0  # delta, gated: upper end of the gate
    ddl_attnres_block: int = 1  # attnres: sublayers of a block
    ddl_f_norm: bool = False  # not delta, hyper, mhc, attnres: a sublayer's output is divided by its root mean square
    output_init_std_factor: float = 1.0  # initial values of the output projections, in units of their usual ones
    mlp_size: int = 0  # 0: 8 hidden_size / 3, rounded down
    ddl_residual_by_layer: list[str] | None = None  # c = 1: a rule for each layer

    def __post_init__(self):
        if self.head_dim == 0:
            self.head_dim, rest = divmod(self.hidden_size, self.num_attention_heads)
            if rest:
                raise ValueError(f"head_dim: expected hidden_size / num_attention_heads to be a whole number, found "
                                 f"{self.hidden_size} / {self.num_attention_heads}; change one of the two or set head_dim")
        check_config(self)

    def rule(self, layer: int) -> str:
        return self.ddl_residual_by_layer[layer] if self.ddl_residual_by_layer else self.ddl_residual

    def steps(self, layer: int) -> int:
        """Vectors of width hidden_size that each sublayer of a layer outputs."""
        return self.ddl_steps if self.rule(layer) == "delta" else 1

    @property
    def gate_start(self) -> float:
        """Initial value of the gate."""
        unset = self.ddl_beta_init == 1 and self.ddl_beta_max <= 1
        return self.ddl_beta_max / 2 if unset else self.ddl_beta_init

    def normalizes_f(self, layer: int) -> bool:
        return self.ddl_f_norm and self.rule(layer) not in ("delta", "hyper", "mhc", "attnres")

    def averaged(self, block: int) -> list[int]:
        """States whose weighted sum the stream becomes after block 1, 2, ...; 0 is the embedding's. Empty: no sum."""
        if not self.dense_average or block % self.dense_period:
            return []
        return [i for i in range(block + 1) if (block - i) % self.dense_dilation == 0]

    @property
    def channels(self) -> int:
        """Columns of the state."""
        return self.ddl_streams if self.rule(0) in ("hyper", "mhc") else self.ddl_value_channels

    @property
    def rotated(self) -> int:
        """Dimensions of a head that are rotated, even. The ratio is a float32 in `ddl`; 1e-7 exceeds its rounding error."""
        ratio = struct.unpack("f", struct.pack("f", self.rope_ratio))[0]
        return math.floor(ratio * self.head_dim * (1 + 1e-7)) // 2 * 2

    @property
    def state_kernel(self) -> int:
        default = self.ddl_value_channels if self.ddl_compress == "channel" else 4
        return self.ddl_state_shortconv_kernel_size or default

    @property
    def mlp_width(self) -> int:
        return self.mlp_size or 8 * self.hidden_size // 3


CHOICES = {"ddl_map": ("k", "v"), "ddl_update": ("delta", "write", "erase"), "ddl_v_input": ("stream", "context"),
           "ddl_compress": ("token", "channel", "mix"), "ddl_embed": ("repeat", "conv")}


def check_config(cfg: Config) -> None:
    """ValueError for a choice that does not exist, and for a combination of keys that `ddl` rejects."""
    layers, channels, by_layer = range(cfg.num_hidden_layers), cfg.ddl_value_channels, cfg.ddl_residual_by_layer or []
    chosen = [(key, getattr(cfg, key)) for key in ("ddl_residual", *CHOICES)]
    for key, value in chosen + [("ddl_residual_by_layer", rule) for rule in by_layer]:
        choices = CHOICES.get(key, ("add", *RULES))
        if value not in choices:
            raise ValueError(f"{key}: {value!r} is none of {', '.join(choices)}")

    if by_layer and len(by_layer) != len(layers):
        raise ValueError(f"ddl_residual_by_layer: {len(by_layer)} rules, num_hidden_layers is {len(layers)}")
    if by_layer and channels > 1:
        raise ValueError(f"ddl_residual_by_layer needs ddl_value_channels 1, found {channels}")
    for rule in by_layer:
        if rule in ("hyper", "mhc", "attnres"):
            raise ValueError(f"ddl_residual_by_layer: expected rules whose state is one vector, found {rule}, whose state all "
                             f"layers would share; set ddl_residual to {rule} instead")

    rules = {cfg.rule(layer): layer for layer in reversed(layers)}  # of each rule its first layer
    if "attnres" in rules and cfg.dense_average:
        raise ValueError("dense_average: expected false with ddl_residual attnres, found true")
    for rule in rules:
        if rule != "delta" and channels > 1:
            raise ValueError(f"ddl_value_channels is {channels}, but ddl_residual {rule} has only 1")
    if "delta" in rules and not cfg.ddl_v_constant and cfg.ddl_v_sigmoid and cfg.ddl_v_sigmoid_scale == 0:
        raise ValueError("ddl_v_sigmoid_scale: expected another number than 0")
    if "delta" in rules and cfg.ddl_map == "v" and cfg.ddl_steps > 1:
        raise ValueError(f"ddl_steps is {cfg.ddl_steps}, but ddl_map is v: several steps need ddl_map k")

    start, end, constant = cfg.gate_start, cfg.ddl_beta_max, cfg.ddl_beta_constant_value
    if "delta" in rules or "gated" in rules:
        if cfg.ddl_beta_constant and not 0 <= constant <= end:
            raise ValueError(f"ddl_beta_constant_value: {constant:g} is out of range (0 to ddl_beta_max, {end:g})")
        if end == Config.ddl_beta_max:  # the default range includes its ends
            if not 0 <= start <= end:
                raise ValueError(f"ddl_beta_init: {start:g} is out of range (0 to {end:g})")
        elif not 0 < start < end:
            raise ValueError(f"ddl_beta_init: {start:g} is out of range (above 0 to below ddl_beta_max, {end:g})")

    ignores_f = cfg.ddl_map == "v" and (cfg.ddl_v_constant or cfg.ddl_update == "erase")
    if cfg.value_residual and ignores_f and "delta" in rules and len(rules) > 1:
        raise ValueError("value_residual: expected layers that all depend on the output of attention, but with this update the "
                         f"rule delta of layer {rules['delta']} does not")
    if cfg.ddl_f_norm and not any(cfg.normalizes_f(layer) for layer in layers):
        raise ValueError("ddl_f_norm: expected a layer with the rule add, scale, gated, highway or laurel, found none")


FIELDS = [f.name for f in dataclasses.fields(Config)]
RELEASE_KEYS = FIELDS[: FIELDS.index("ddl_residual")]
OWN_KEYS = FIELDS[FIELDS.index("ddl_residual") :]
ALIASES = {"ddl_v_dim1_constant": "ddl_v_constant", "ddl_v_dim1_constant_value": "ddl_v_constant_value"}
REQUIRED_KEYS = ("vocab_size", "num_hidden_layers", "num_attention_heads", "hidden_size")
# Keys that the release and Hugging Face's library write besides the configuration; they have no effect here.
SILENT_KEYS = """model_type architectures auto_map torch_dtype dtype transformers_version use_cache attention_dtype
    intermediate_size mlp_hidden_mult _name_or_path bos_token_id eos_token_id pad_token_id return_dict output_attentions
    output_hidden_states is_decoder is_encoder_decoder _attn_implementation attn_implementation attn_implementation_autoset
    _attn_implementation_autoset _attn_implementation_internal add_cross_attention torchscript kv_cache_slot_size""".split()
# Switches of the release that models here do not have: the value without effect (null has none either). Another value is
# an error, or a warning with the reason.
SWITCHES = {
    "bias": (False, "no model of the release reads it, and none has biases in its layers"),
    "using_groupnorm": (False, None),
    "scale_attn_by_inverse_layer_idx": (False, "no model of the release reads it"),
    "use_output_gate": (False, None),
    "use_k_shift": (False, None),
    "use_v_shift": (False, None),
    "q_activation": (None, None),
    "k_activation": (None, None),
    "v_activation": (None, None),
    "ddl_state_dv_shortconv_causal": (False, None),
    "ddl_sequence_reduction_version": (1, None),
    "residual_branch_mult": (1, None),
    "rms_norm_eps": (1e-5, None),
    "tie_word_embeddings": (True, None),
    "dropout": (0, "no model of the release reads it, and there is no dropout here"),
}


def check_switch(key: str, value, path) -> None:
    """A switch of the release in config.json, at `path`: ValueError or a warning unless it has no effect."""
    neutral, remark = SWITCHES[key]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and neutral is not None and not isinstance(neutral, bool):
        has_effect = not abs(value - neutral) <= 1e-12
    else:
        has_effect = value is not None and value is not neutral
    if has_effect and not remark:
        raise ValueError(f"{path}: {key} is {json.dumps(value)}, expected {json.dumps(neutral)}: other models are not "
                         "supported")
    if has_effect:
        LOG.warning("%s: %s is %s: %s; ignored", path, key, json.dumps(value), remark)


def read_keys(raw: dict, path) -> dict:
    """The keys of config.json, at `path`, that are fields of Config."""
    for key in REQUIRED_KEYS:
        if raw.get(key) is None:
            raise ValueError(f"{path}: no key {key}: not a model of ddl or of the authors' release")
    for alias, key in ALIASES.items():
        if alias in raw and key in raw and raw[alias] != raw[key]:
            raise ValueError(f"{path}: {key} and {alias} are the same setting and differ")
    for key, value in raw.items():
        if key in SWITCHES:
            check_switch(key, value, path)
        elif key not in FIELDS and key not in ALIASES and key not in SILENT_KEYS:
            LOG.warning("%s: unknown key %r; it is ignored", path, key)
    keys = {ALIASES.get(key, key): value for key, value in raw.items() if value is not None}
    return {key: value for key, value in keys.items() if key in FIELDS}


def from_metadata(key: str, text: str):
    """The value of one of ddl's own keys, which the metadata stores as text."""
    if key == "ddl_residual_by_layer":
        return text.split(",") if text else None
    default = getattr(Config, key)
    return text == "true" if isinstance(default, bool) else type(default)(text)


def to_metadata(value) -> str:
    return ",".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)


def inferred_keys(keys: dict, shapes: dict[str, tuple[int, ...]]) -> dict:
    """Keys inferred from names and shapes of the tensors, given the keys of the files; and the files' default of head_dim."""
    d, layers = keys["hidden_size"], [f"transformer.h.{i}." for i in range(keys["num_hidden_layers"])]
    delta = [p for p in layers if p + "ddl_attn.v_proj.weight" in shapes]
    usual = 8 * d // 3
    width = shapes.get(layers[0] + "mlp.c_fc1.weight", (usual,))[0]
    inferred = {"head_dim": 128, "mlp_size": 0 if width == usual else width,
                "use_qk_rmsnorm": layers[0] + "attn.q_rms.weight" in shapes, "ddl_residual": "delta" if delta else "add"}
    if "ddl_residual" not in keys and 0 < len(delta) < len(layers):
        inferred["ddl_residual_by_layer"] = ["delta" if p in delta else "add" for p in layers]
    if not delta:
        return inferred
    rule, token = delta[0] + "ddl_attn.", layers[0] + "compress.shortconv.weight"
    steps = keys.get("ddl_steps", max(1, shapes.get(delta[0] + "attn.c_proj.weight", (0,))[0] // d))
    compress = "token" if token in shapes else "channel" if layers[0] + "compress.read" in shapes else "mix"
    inferred |= {"ddl_steps": steps, "ddl_value_channels": shapes[rule + "v_proj.weight"][0] // steps,
                 "ddl_map": "v" if rule + "k_proj.weight" in shapes or rule + "k_down.weight" in shapes else "k",
                 "ddl_k_rank": shapes.get(rule + "k_down.weight", (0,))[0],
                 "ddl_beta_single_linear": rule + "beta.weight" in shapes,
                 "ddl_beta_hidden_size": shapes.get(rule + "beta_in.weight", (128,))[0],
                 "ddl_compress": compress,
                 "ddl_embed": "conv" if "input_embed.conv.weight" in shapes else "repeat"}
    kernel = shapes.get(token) or shapes.get(layers[0] + "compress.weight")
    if kernel and keys.get("ddl_compress", compress) != "mix":
        inferred["ddl_state_shortconv_kernel_size"] = kernel[1]
    if "input_embed.conv.weight" in shapes:
        inferred["input_embed_shortconv_kernel_size"] = shapes["input_embed.conv.weight"][2]
    return inferred


def config_from(raw: dict, shapes: dict[str, tuple[int, ...]], metadata: dict[str, str], path="config.json") -> Config:
    """config.json, at `path`, then the metadata of the tensors' file, then names and shapes of the tensors."""
    keys = read_keys(raw, path)
    keys |= {key: from_metadata(key, metadata[key]) for key in OWN_KEYS if key not in keys and key in metadata}
    try:
        return Config(**(inferred_keys(keys, shapes) | keys))
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


# ---- the model -------------------------------------------------------------------------------------------------


def linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=bias)


def widened(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def without_autocast(x: torch.Tensor) -> contextlib.AbstractContextManager:
    """Products keep the format of their operands, on the device of x."""
    device = x.device.type
    available = torch.amp.autocast_mode.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if available else contextlib.nullcontext()


def wide_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """weight x + bias in float32 or better"""
    with without_autocast(x):
        return F.linear(widened(x), widened(weight), None if bias is None else widened(bias))


class Projection(nn.Linear):
    """A linear layer of a gate or target, in float32 or better, also in torch.autocast"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return wide_linear(x, self.weight, self.bias)


class Norm(nn.Module):
    """x / sqrt(mean(x^2) + 1e-5) * weight; torch takes the mean in float32 or better."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


class Past:
    """What tokens of earlier forward passes left for the next one: keys and values of attention, and the last inputs of
    convolutions over tokens. valid (B, tokens so far and of the next pass), bool: False for padding, which has no effect
    on other tokens; None: there is no padding. keep False: one pass only, with padding."""

    def __init__(self, valid: torch.Tensor | None = None, keep: bool = True) -> None:
        self.valid, self.keep = valid, keep
        self.length, self.kept, self.at = 0, [], 0  # tokens so far; of each call of extend in a pass; the next call

    def begin(self, tokens: torch.Tensor) -> None:
        """Before a pass over tokens (B, T)."""
        T, before = tokens.shape[1], self.length
        self.at, self.length = 0, before + T
        self.new, self.position = None, torch.arange(before, self.length, device=tokens.device)
        if self.valid is not None:  # padding has no position
            self.new, self.position = self.valid[:, before:], (self.valid.cumsum(1)[:, before:] - 1).clamp(min=0)
        seen = torch.ones(T, self.length, dtype=torch.bool, device=tokens.device).tril(before)
        # (T, tokens so far) or (B, 1, T, tokens so far); padding sees itself, a softmax over nothing would be NaN
        self.mask = seen if self.valid is None else seen & (self.valid[:, None, None] | seen.triu(before))

    def extend(self, x: torch.Tensor, most: int | None = None) -> torch.Tensor:
        """x (B, T, ...) after what this call of earlier passes kept: the last `most` tokens (None: all)"""
        if not self.keep:
            return x
        if self.at < len(self.kept):
            x = torch.cat([self.kept[self.at], x], 1)
        else:
            self.kept.append(x)
        self.kept[self.at] = x if most is None else x[:, max(x.shape[1] - most, 0) :]
        self.at += 1
        return x

    def select(self, rows: torch.Tensor) -> None:
        """Continues with sequences `rows` of the batch, as a beam search does."""
        self.kept = [x.index_select(0, rows) for x in self.kept]
        self.valid = None if self.valid is None else self.valid.index_select(0, rows)


def with_past(x: torch.Tensor, taps: int, past: Past | None) -> torch.Tensor:
    """x (B, T, w) -> (B, w, taps - 1 + T): the inputs before x, 0 where there are none, then x"""
    T = x.shape[1]
    if past is not None:
        x = past.extend(x if past.new is None else x.masked_fill(~past.new[..., None], 0), taps - 1)
    return F.pad(x.transpose(1, 2), (taps - 1 + T - x.shape[1], 0))


class First:
    """Attention's values (B, T, H, h) of layer 0. Not a list: fully_shard passes a copy of a list to each block."""

    def __init__(self) -> None:
        self.values: torch.Tensor | None = None


class Attention(nn.Module):
    """Causal softmax attention. Queries and keys are rotated, then normalized."""

    def __init__(self, cfg: Config, layer: int) -> None:
        super().__init__()
        self.heads, self.width = cfg.num_attention_heads, cfg.head_dim
        d, inner = cfg.hidden_size, cfg.num_attention_heads * cfg.head_dim
        self.c_q, self.c_k, self.c_v = linear(d, inner), linear(d, inner), linear(d, inner)
        self.c_proj = linear(inner, d * cfg.steps(layer))
        if cfg.value_residual and layer > 0:
            self.v_mix = nn.Parameter(torch.empty(2))
        if cfg.use_qk_rmsnorm:
            self.q_rms, self.k_rms = Norm(cfg.head_dim), Norm(cfg.head_dim)
        self.rotated, self.base = cfg.rotated, cfg.rope_base

    def rotate(self, x: torch.Tensor, past: Past | None = None) -> torch.Tensor:
        """x (B, T, H, h): dimension i turns with i + R/2, by position * base^(-2i/R)."""
        R = self.rotated
        if R == 0:
            return x
        wide = dict(dtype=torch.float32, device=x.device)
        speed = 1.0 / self.base ** (torch.arange(0, R, 2, **wide) / R)
        position = torch.arange(x.shape[1], **wide) if past is None else past.position.to(**wide)
        angle = (position[..., None] * speed)[..., None, :]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., : R // 2], x[..., R // 2 : R]
        return torch.cat([a * cos - b * sin, a * sin + b * cos, x[..., R:]], dim=-1)

    def forward(self, x: torch.Tensor, first: First | None = None, past: Past | None = None) -> torch.Tensor:
        """first: empty in layer 0, which stores its values in it; the others mix theirs with them"""
        B, T, _ = x.shape
        q, k, v = (c(x).view(B, T, self.heads, self.width) for c in (self.c_q, self.c_k, self.c_v))
        if first is not None and first.values is None:
            first.values = v
        if hasattr(self, "v_mix"):
            v = self.v_mix[0] * v + self.v_mix[1] * first.values
        q, k = self.rotate(q, past), self.rotate(k, past)
        if hasattr(self, "q_rms"):
            q, k = self.q_rms(q), self.k_rms(k)
        mask = past.mask if past is not None else None
        if past is not None:
            k, v = past.extend(k), past.extend(v)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=past is None)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, self.heads * self.width))


class MLP(nn.Module):
    def __init__(self, cfg: Config, layer: int) -> None:
        super().__init__()
        d, m = cfg.hidden_size, cfg.mlp_width
        self.c_fc1, self.c_fc2, self.c_proj = linear(d, m), linear(d, m), linear(m, d * cfg.steps(layer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(F.silu(self.c_fc1(x)) * self.c_fc2(x))


class Taps(nn.Module):
    """A causal convolution over tokens, one kernel a channel; the last tap is on the current token."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, taps))

    def forward(self, x: torch.Tensor, past: Past | None = None) -> torch.Tensor:
        """x (B, T, channels)"""
        channels, taps = self.weight.shape
        return F.conv1d(with_past(x, taps, past), self.weight[:, None], groups=channels).transpose(1, 2)


class Compressor(nn.Module):
    """The state X (B, T, d, c) read down to (B, T, d)."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        d, c = cfg.hidden_size, cfg.ddl_value_channels
        if cfg.ddl_compress == "mix":
            self.weight = nn.Parameter(torch.empty(d, c))
            return
        self.read = nn.Parameter(torch.empty(c))
        if cfg.ddl_compress == "token":
            self.shortconv = Taps(d * c, cfg.state_kernel)
        else:
            self.weight = nn.Parameter(torch.empty(d, cfg.state_kernel))

    def collapsed(self) -> torch.Tensor:
        """(d, c): kernel along the channels and read vector are one weight for each feature and channel."""
        if not hasattr(self, "read"):
            return self.weight
        taps, c = self.weight.shape[1], self.read.shape[0]
        where = torch.arange(c, device=self.read.device) - torch.arange(taps, device=self.read.device)[:, None]
        where = where + (taps - 1) // 2
        inside = (where >= 0) & (where < c)
        return self.weight @ (self.read[where.clamp(0, c - 1)] * inside)

    def forward(self, X: torch.Tensor, past: Past | None = None) -> torch.Tensor:
        if hasattr(self, "shortconv"):
            return self.shortconv(X.flatten(2), past).view(X.shape) @ self.read
        return (X * self.collapsed()).sum(-1)


class InputEmbed(nn.Module):
    """(B, T, d) -> (B, T, d, c): channel i*c + j is a causal convolution of feature i."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        d, taps = cfg.hidden_size, cfg.input_embed_shortconv_kernel_size
        self.conv = nn.Conv1d(d, d * cfg.ddl_value_channels, taps, groups=d, bias=False)

    def forward(self, x: torch.Tensor, past: Past | None = None) -> torch.Tensor:
        return self.conv(with_past(x, self.conv.kernel_size[0], past)).transpose(1, 2).reshape(*x.shape, -1)


class ScaleRule(nn.Module):
    """x' = x + lambda f, lambda one number or one for each feature (LayerScale)"""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(cfg.hidden_size if cfg.ddl_per_feature else 1))

    def forward(self, X: torch.Tensor, f: torch.Tensor, x_in: torch.Tensor, ctx: torch.Tensor) -> torch.Tensor:
        return X + (self.scale * f)[..., None]


class Gate(nn.Module):
    """Logits (B, T, R) of R steps -> beta in (0, ddl_beta_max), in float32 or better; a constant if ddl_beta_constant is set"""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.constant, self.most = cfg.ddl_beta_constant_value if cfg.ddl_beta_constant else None, cfg.ddl_beta_max

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        if self.constant is not None:
            return torch.full_like(widened(logits), self.constant)
        return self.most * torch.sigmoid(widened(logits))


class HighwayGate(Projection):
    """ctx (B, T, d) -> tau in (0, 1), in float32 or better: (B, T, 1), or (B, T, d) with ddl_per_feature"""

    def forward(self, ctx: torch.Tensor) -> torch.Tensor:
        if self.out_features == 1:
            return torch.sigmoid(super().forward(ctx))
        return torch.sigmoid(widened(F.linear(ctx, self.weight, self.bias)))  # as wide as a sublayer's: autocast may round


class Target(nn.Module):
    """Logits (B, T, R c) of R steps -> v (B, T, R c), in float32 or better"""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.constant = cfg.ddl_v_constant_value if cfg.ddl_v_constant else None
        self.scale = cfg.ddl_v_sigmoid_scale if cfg.ddl_v_sigmoid else None

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        v = widened(logits)
        if self.constant is not None:
            return torch.full_like(v, self.constant)
        return v if self.scale is None else self.scale * torch.sigmoid(v)


class Direction(nn.Module):
    """q (B, T, d) -> k (B, T, d) = q / sqrt(|q|^2 + eps^2), in float32 or better"""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.eps = cfg.ddl_k_eps

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        q = widened(q)
        return q / (q.square().sum(-1, keepdim=True) + self.eps**2).sqrt()


class Readout(nn.Module):
    """X (B, T, d, c), k (B, T, d) -> k'X (B, T, c)"""

    def forward(self, X: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        with without_autocast(X):
            return torch.einsum("btd,btdc->btc", k, widened(X))


class GatedRule(nn.Module):
    """x' = x + beta f"""

    def __init__(self, cfg: Config, steps: int = 1) -> None:
        super().__init__()
        d, hidden = cfg.hidden_size, cfg.ddl_beta_hidden_size
        if cfg.ddl_beta_single_linear:
            self.beta = Projection(d, steps)
        else:
            self.beta_in, self.beta_out = Projection(d, hidden, bias=False), Projection(hidden, steps)
        self.gate = Gate(cfg)

    def gate_logits(self, ctx: torch.Tensor) -> torch.Tensor:
        return self.beta(ctx) if hasattr(self, "beta") else self.beta_out(torch.tanh(self.beta_in(ctx)))

    def forward(self, X: torch.Tensor, f: torch.Tensor, x_in: torch.Tensor, ctx: torch.Tensor) -> torch.Tensor:
        return X + (self.gate(self.gate_logits(ctx)) * f)[..., None].to(X.dtype)


class HighwayRule(nn.Module):
    """x' = (1 - tau) x + tau f, tau = sigmoid(W ctx + b)"""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.gate = HighwayGate(cfg.hidden_size, cfg.hidden_size if cfg.ddl_per_feature else 1)

    def forward(self, X: torch.Tensor, f: torch.Tensor, x_in: torch.Tensor, ctx: torch.Tensor) -> torch.Tensor:
        tau = self.gate(ctx)[..., None]
        return ((1 - tau) * X + tau * f[..., None]).to(X.dtype)


class LaurelRule(nn.Module):
    """x' = m_0 f + m_1 (x + U D x), m = 2 softmax(mix), U D of a low rank (LAuReL)"""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        d, rank = cfg.hidden_size, cfg.ddl_laurel_rank
        self.mix = nn.Parameter(torch.empty(2))
        if rank:
            self.down, self.up = linear(d, rank), linear(rank, d)

    def forward(self, X: torch.Tensor, f: torch.Tensor, x_in: torch.Tensor, ctx: torch.Tensor) -> torch.Tensor:
        m = 2 * widened(self.mix).softmax(-1)
        x = x_in + self.up(self.down(x_in)) if hasattr(self, "up") else x_in
        return (m[0] * f + m[1] * x)[..., None].to(X.dtype)


class DeltaRule(GatedRule):
    """X' = X + beta k (v - k'X)': how a sublayer's output f enters the state, in ddl_steps such steps."""

    def __init__(self, cfg: Config) -> None:
        super().__init__(cfg, cfg.ddl_steps)
        d = cfg.hidden_size
        self.cfg, self.expanded = cfg, cfg.ddl_value_channels > 1
        self.v_proj = Projection(d, cfg.ddl_steps * cfg.ddl_value_channels)
        if cfg.ddl_map == "v" and cfg.ddl_k_rank:
            self.k_down, self.k_up = linear(d, cfg.ddl_k_rank), linear(cfg.ddl_k_rank, d)
        elif cfg.ddl_map == "v":
            self.k_proj = linear(d, d)

        self.direction, self.target, self.readout = Direction(cfg), Target(cfg), Readout()
        self.fused = None  # (X, k (B, T, d), beta (B, T, 1), v (B, T, c), ddl_update) -> X', instead of the loop's body

    def unnormalized_direction(self, f: torch.Tensor, x_in: torch.Tensor, ctx: torch.Tensor) -> torch.Tensor:
        """q (B, T, R d)"""
        source = x_in if self.expanded else ctx
        if hasattr(self, "k_proj"):
            return self.k_proj(source)
        return self.k_up(self.k_down(source)) if hasattr(self, "k_down") else f

    def target_logits(self, f: torch.Tensor, x_in: torch.Tensor, ctx: torch.Tensor) -> torch.Tensor:
        """(B, T, R c); not used if the target is constant"""
        cfg = self.cfg
        return self.v_proj(f if cfg.ddl_map == "v" else ctx if cfg.ddl_v_input == "context" else x_in)

    def forward(self, X: torch.Tensor, f: torch.Tensor, x_in: torch.Tensor, ctx: torch.Tensor) -> torch.Tensor:
        """X (B, T, d, c), f (B, T, R d), the others (B, T, d)"""
        q, steps = self.unnormalized_direction(f, x_in, ctx), self.cfg.ddl_steps
        v, beta = self.target(self.target_logits(f, x_in, ctx)), self.gate(self.gate_logits(ctx))
        for q_s, v_s, beta_s in zip(q.chunk(steps, -1), v.chunk(steps, -1), beta.chunk(steps, -1)):
            k = self.direction(q_s)
            if self.fused is not None:
                X = self.fused(X, k, beta_s, v_s, self.cfg.ddl_update)
                continue
            readout = self.readout(X, k)
            error = {"delta": v_s - readout, "write": v_s, "erase": -readout}[self.cfg.ddl_update]
            X = X + (k[..., None] * (beta_s * error)[..., None, :]).to(X.dtype)
        return X


class Mixing(NamedTuple):
    """Weights of n streams: x_in = sum_j read_j X_:j and X'_:k = sum_j mix_kj X_:j + write_k f"""

    read: torch.Tensor  # (B, T, n)
    write: torch.Tensor  # (B, T, n)
    mix: torch.Tensor  # (B, T, n, n)


class StreamWeight(nn.Module):
    """static + scale * tanh(weight y) for each stream's y (B, T, n, d), in float32 or better; static without y"""

    def __init__(self, cfg: Config, outputs: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.static = nn.Parameter(torch.empty(shape))
        if cfg.ddl_hyper_dynamic:
            self.weight = nn.Parameter(torch.empty(outputs, cfg.hidden_size))
            self.scale = nn.Parameter(torch.empty(1))

    def forward(self, y: torch.Tensor | None) -> torch.Tensor:
        static = widened(self.static)
        if y is None:
            return static
        moved = widened(self.scale) * torch.tanh(wide_linear(y, self.weight))
        return static + (moved if static.dim() == 2 else moved.squeeze(-1))


class HyperRule(nn.Module):
    """X'_:k = sum_j A_j,1+k X_:j + b_k f (hyper-connections); .weights are A and b as Mixing"""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        n = cfg.ddl_streams
        self.alpha, self.beta = StreamWeight(cfg, n + 1, (n, n + 1)), StreamWeight(cfg, 1, (n,))
        if cfg.ddl_hyper_dynamic:
            self.norm = Norm(cfg.hidden_size)
        self.weights = HyperWeights()

    def forward(self, X: torch.Tensor, f: torch.Tensor, mixing: Mixing) -> torch.Tensor:
        return mix_streams(X, f, mixing)

    def mixing(self, X: torch.Tensor) -> Mixing:
        y = self.norm(X.transpose(-1, -2)) if hasattr(self, "norm") else None
        return self.weights(X, self.alpha(y), self.beta(y))


class HyperWeights(nn.Module):
    """X (B, T, d, n), A and b with or without (B, T) -> Mixing"""

    def forward(self, X: torch.Tensor, A: torch.Tensor, b: torch.Tensor) -> Mixing:
        n = X.shape[-1]
        A, b = A.expand(*X.shape[:-2], n, n + 1), b.expand(*X.shape[:-2], n)
        return Mixing(A[..., 0], b, A[..., 1:].transpose(-1, -2))


class StreamLogits(nn.Module):
    """scale * (weight y) + bias for the norm y (B, T, d n) of all streams, in float32 or better"""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(outputs, inputs)), nn.Parameter(torch.empty(outputs))
        self.scale = nn.Parameter(torch.empty(1))

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return widened(self.scale) * wide_linear(y, self.weight) + widened(self.bias)


class MhcWeights(nn.Module):
    """Logits (B, T, n), (B, T, n), (B, T, n n) -> Mixing: sigmoids, and a matrix made doubly stochastic (Sinkhorn)"""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.iterations = cfg.ddl_sinkhorn_iterations

    def forward(self, pre: torch.Tensor, post: torch.Tensor, res: torch.Tensor) -> Mixing:
        M = res.unflatten(-1, (pre.shape[-1], pre.shape[-1]))
        M = (M - M.detach().amax(-2, keepdim=True)).exp()  # the first division cancels the factors
        for _ in range(self.iterations):
            M = M / M.sum(-2, keepdim=True)
            M = M / M.sum(-1, keepdim=True)
        return Mixing(torch.sigmoid(pre), 2 * torch.sigmoid(post), M)


class MhcRule(nn.Module):
    """X'_:k = sum_j M_kj X_:j + b_k f, M doubly stochastic (manifold-constrained hyper-connections)"""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        n, inputs = cfg.ddl_streams, cfg.hidden_size * cfg.ddl_streams
        self.norm = Norm(inputs)
        self.pre, self.post, self.res = StreamLogits(inputs, n), StreamLogits(inputs, n), StreamLogits(inputs, n * n)
        self.weights = MhcWeights(cfg)

    def forward(self, X: torch.Tensor, f: torch.Tensor, mixing: Mixing) -> torch.Tensor:
        return mix_streams(X, f, mixing)

    def mixing(self, X: torch.Tensor) -> Mixing:
        y = self.norm(X.flatten(-2))
        return self.weights(self.pre(y), self.post(y), self.res(y))


def mix_streams(X: torch.Tensor, f: torch.Tensor, mixing: Mixing) -> torch.Tensor:
    """X (B, T, d, n), f (B, T, d)"""
    with without_autocast(X):
        moved = widened(X) @ mixing.mix.transpose(-1, -2)
    return (moved + widened(f)[..., None] * mixing.write[..., None, :]).to(X.dtype)


class Depth(nn.Module):
    """Attention over depth: sources (B, T, d) -> sum_i alpha_i v_i, alpha a softmax of query . norm(v_i)"""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.query, self.norm = Vector(cfg.hidden_size), Norm(cfg.hidden_size)
        self.alpha = DepthWeights()

    def forward(self, sources: list[torch.Tensor]) -> torch.Tensor:
        V = torch.stack(sources, -2)
        alpha = self.alpha(wide_linear(self.norm(V), self.query.weight[None]).squeeze(-1))
        return (alpha[..., None] * V).sum(-2).to(V.dtype)


class Vector(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))


class DepthWeights(nn.Module):
    """Scores (B, T, sources) -> weights of the sources"""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.softmax(-1)


# Of each rule but "add": the prefix of its parameters, and its class.
RULES = {"delta": ("ddl", DeltaRule), "scale": ("res", ScaleRule), "gated": ("res", GatedRule), "highway": ("res", HighwayRule),
         "hyper": ("res", HyperRule), "mhc": ("res", MhcRule), "laurel": ("res", LaurelRule), "attnres": ("res", Depth)}


def normalized(f: torch.Tensor) -> torch.Tensor:
    """f / sqrt(mean(f^2) + 1e-5)"""
    return F.rms_norm(f, f.shape[-1:], None, 1e-5)


class Block(nn.Module):
    def __init__(self, cfg: Config, layer: int) -> None:
        super().__init__()
        if cfg.ddl_value_channels > 1:
            self.compress = Compressor(cfg)
        self.attn, self.mlp = Attention(cfg, layer), MLP(cfg, layer)
        self.ln_1, self.ln_2 = Norm(cfg.hidden_size), Norm(cfg.hidden_size)
        self.normalizes_f = cfg.normalizes_f(layer)
        self.rules = []  # names of the rules' modules; none for "add"
        if cfg.rule(layer) in RULES:
            prefix, rule = RULES[cfg.rule(layer)]
            self.rules = [f"{prefix}_attn", f"{prefix}_mlp"]
            for name in self.rules:
                setattr(self, name, rule(cfg))

    def read_depth(self, sources: list[torch.Tensor], first: First, s: int, block: int,
                   past: Past | None = None) -> list[torch.Tensor]:
        """The rule attnres: finished blocks and the running part -> the same after sublayers s and s + 1"""
        sources = list(sources)
        for i, norm in enumerate((self.ln_1, self.ln_2)):
            ctx = norm(getattr(self, self.rules[i])(sources))
            f = self.mlp(ctx) if i else self.attn(ctx, first, past)
            if (s + i) % block == 0:
                sources.append(f)
            else:
                sources[-1] = sources[-1] + f
        return sources

    def forward(self, X: torch.Tensor, first: First | None = None, past: Past | None = None) -> torch.Tensor:
        """X (B, T, d, c); first: see Attention"""
        for i, norm in enumerate((self.ln_1, self.ln_2)):
            rule = getattr(self, self.rules[i]) if self.rules else None
            x_in, mixing = read(X, rule, getattr(self, "compress", None), past)
            ctx = norm(x_in)
            f = self.mlp(ctx) if i else self.attn(ctx, first, past)
            if self.normalizes_f:
                f = normalized(f)
            X = write(X, rule, x_in, mixing, ctx, f)
        return X


def read(X: torch.Tensor, rule: nn.Module | None, compress: nn.Module | None,
         past: Past | None = None) -> tuple[torch.Tensor, Mixing | None]:
    """x_in (B, T, d) of the state X (B, T, d, c), and the mixing weights of a rule with streams"""
    if not hasattr(rule, "mixing"):
        return compress(X, past) if compress is not None else X.squeeze(-1), None
    mixing = rule.mixing(X)
    with without_autocast(X):
        return (widened(X) @ mixing.read[..., None]).squeeze(-1).to(X.dtype), mixing


def write(X: torch.Tensor, rule: nn.Module | None, x_in: torch.Tensor, mixing: Mixing | None, ctx: torch.Tensor,
          f: torch.Tensor) -> torch.Tensor:
    """The state after a sublayer with the output f (B, T, d) for ctx, the norm of x_in"""
    if rule is None:
        return X + f[..., None]
    return rule(X, f, x_in, ctx) if mixing is None else rule(X, f, mixing)


class Average(nn.Module):
    """sum_j weight_j X_j of the states (B, T, d, c) after blocks (DenseFormer)"""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n))

    def forward(self, states: list[torch.Tensor]) -> torch.Tensor:
        return sum(w * X for w, X in zip(self.weight, states))


@torch.no_grad()
def initialize(cfg: Config, name: str, parameter: nn.Parameter) -> None:
    """Sets the initial values of docs/formats.md, with torch's random numbers."""
    d = cfg.hidden_size
    std = cfg.hidden_init_std_factor / math.sqrt(d)
    if (place := re.match(r"transformer\.h\.(\d+)\.res_(attn|mlp)\.", name)) and cfg.rule(int(place[1])) in ("hyper", "mhc"):
        initialize_streams(name[place.end() :], parameter, 2 * int(place[1]) + (place[2] == "mlp"), std)
    elif name.startswith("transformer.dwa."):
        parameter.zero_()[-1] = 1.0
    elif name.endswith(".v_mix"):
        parameter.fill_(0.5)
    elif name.endswith(("q_rms.weight", "k_rms.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight", ".norm.weight")):
        parameter.fill_(1.0)
    elif name.endswith(".read"):
        parameter.fill_(cfg.ddl_state_read_init or 1.0 / cfg.ddl_value_channels)
    elif name.endswith((".mix", ".up.weight", ".query.weight")):
        parameter.zero_()
    elif name.endswith(".scale"):
        parameter.fill_(cfg.ddl_scale_init)
    elif name.endswith(".gate.bias"):
        parameter.fill_(logit(cfg.ddl_highway_init))
    elif name.endswith((".beta.bias", ".beta_out.bias")):
        parameter.fill_(logit(min(max(cfg.gate_start / cfg.ddl_beta_max, 1e-6), 1 - 1e-6)))
    elif name.endswith(".v_proj.bias"):
        parameter.uniform_(-1.0 / math.sqrt(d), 1.0 / math.sqrt(d))
    elif name == "input_embed.conv.weight":
        parameter.zero_()[..., -1] = 1.0
    elif name == "transformer.wte.weight":
        parameter.normal_(std=cfg.embedding_init_std)
    else:  # matrices and the compressors' weights
        out = cfg.output_init_std_factor / math.sqrt(cfg.num_hidden_layers)
        parameter.normal_(std=std * out if name.endswith(".c_proj.weight") else std)


def initialize_streams(name: str, parameter: nn.Parameter, sublayer: int, std: float) -> None:
    """Those of a hyper or mhc rule; sublayer counts attention and MLP of all layers from 0."""
    if name == "alpha.static":
        n = parameter.shape[0]
        parameter.zero_()[sublayer % n, 0] = 1.0
        parameter[:, 1:] = torch.eye(n, device=parameter.device)
    elif name in ("beta.static", "norm.weight"):
        parameter.fill_(1.0)
    elif name in ("alpha.weight", "beta.weight", "pre.bias", "post.bias"):
        parameter.zero_()
    elif name.endswith(".scale"):
        parameter.fill_(0.01)
    elif name == "res.bias":
        n = math.isqrt(parameter.numel())
        parameter.copy_((4.0 * torch.eye(n, device=parameter.device) - 4.0).flatten())
    else:
        parameter.normal_(std=std)


def logit(p: float) -> float:
    return math.log(p / (1 - p))


class Model(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.config = cfg
        blocks = nn.ModuleList(Block(cfg, i) for i in range(cfg.num_hidden_layers))
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(cfg.vocab_size, cfg.hidden_size), "h": blocks})
        averages = {i: len(cfg.averaged(i)) for i in range(1, cfg.num_hidden_layers + 1) if cfg.averaged(i)}
        if averages:
            self.transformer["dwa"] = nn.ModuleDict({str(i): Average(n) for i, n in averages.items()})
        if cfg.ddl_value_channels > 1:
            self.readout = Compressor(cfg)
            if cfg.ddl_embed == "conv":
                self.input_embed = InputEmbed(cfg)
        if cfg.rule(0) == "attnres":
            self.readout = Depth(cfg)
        self.ln_f = Norm(cfg.hidden_size)
        for name, parameter in self.named_parameters():
            initialize(cfg, name, parameter)
        # Calls a block, (block, *arguments) -> its result: functools.partial(checkpoint, use_reentrant=False), for example,
        # with the checkpoint of torch.utils.checkpoint.
        self.checkpoint = None
        self.folder = None  # the folder that the model was loaded from
        self.tokenizer = {}  # files of the folder that the model was loaded from: name -> bytes

    def run(self, block, *arguments):
        """A block's result, through `checkpoint` if there is one."""
        return block(*arguments) if self.checkpoint is None else self.checkpoint(block, *arguments)

    def hidden(self, tokens: torch.Tensor, past: Past | None = None) -> torch.Tensor:
        """tokens (B, T) after those of `past`, to which they are added -> what the head reads (B, T, d)"""
        if past is not None:
            past.begin(tokens)
        x = self.transformer["wte"](tokens)
        if hasattr(self, "input_embed"):
            X = self.input_embed(x, past)
        else:
            X = x[..., None].expand(*x.shape, self.config.channels)
        first, states, sources = First(), [X], [x]
        for i, block in enumerate(self.transformer["h"], 1):
            if self.config.rule(0) == "attnres":
                sources = self.run(block.read_depth, sources, first, 2 * i - 2, self.config.ddl_attnres_block, past)
                continue
            X = self.run(block, X, first, past)
            if self.config.dense_average:
                states.append(X)
            if self.config.averaged(i):
                X = self.transformer["dwa"][str(i)]([states[j] for j in self.config.averaged(i)])
        if self.config.rule(0) == "attnres":
            x = self.readout(sources)
        elif hasattr(self, "readout"):
            x = self.readout(X, past)
        else:  # streams, or one column
            x = X.sum(-1) if self.config.channels > 1 else X.squeeze(-1)
        return self.ln_f(x)

    def head(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., d) -> logits (..., vocab_size)"""
        scale = self.config.hidden_size_base / self.config.hidden_size if self.config.mup else 1.0
        return F.linear(x, self.transformer["wte"].weight) * scale

    def forward(self, tokens: torch.Tensor, past: Past | None = None) -> torch.Tensor:
        """tokens (B, T), after those of `past` -> logits (B, T, vocab_size)"""
        return self.head(self.hidden(tokens, past))

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(widened(self(tokens)).flatten(0, 1), targets.flatten(), ignore_index=-1)


# ---- files -----------------------------------------------------------------------------------------------------

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
TOKENIZER_FILES = ("tokenizer.json", "vocab.bpe", "encoder.json", "merges.txt", "vocab.json", "tokenizer_config.json",
                   "added_tokens.json", "special_tokens_map.json")
SHORT = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def read_safetensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    raw = bytearray(Path(path).read_bytes())
    size = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or size > len(raw) - 8:
        raise ValueError(f"{path}: truncated, or not a safetensors file: expected at least {8 + size} bytes, found {len(raw)}")
    header = json.loads(raw[8 : 8 + size])
    expected = 8 + size + max((e["data_offsets"][1] for name, e in header.items() if name != "__metadata__"), default=0)
    if expected > len(raw):
        raise ValueError(f"{path}: truncated: expected {expected} bytes, found {len(raw)}")
    data = torch.frombuffer(raw, dtype=torch.uint8)[8 + size :] if len(raw) > 8 + size else torch.empty(0, dtype=torch.uint8)
    metadata, tensors = header.pop("__metadata__", {}), {}
    for name, entry in header.items():
        if entry["dtype"] not in DTYPES:
            raise ValueError(f"{path}: {name} is of dtype {entry['dtype']}")
        begin, end = entry["data_offsets"]
        tensors[name] = data[begin:end].clone().view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def write_safetensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    names, header, at = {v: k for k, v in DTYPES.items()}, {"__metadata__": metadata}, 0
    flat = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    for name, t in flat.items():
        size = t.numel() * t.element_size()
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for t in flat.values():
            file.write(bytes(t.reshape(-1).view(torch.uint8).numpy()))


def read_tensors(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists():
        return read_safetensors(folder / "model.safetensors")
    if index.exists():
        tensors, metadata = {}, {}
        for name in sorted(set(json.loads(index.read_text())["weight_map"].values())):
            some, notes = read_safetensors(folder / name)
            tensors, metadata = tensors | some, notes | metadata
        return tensors, metadata
    if (folder / "pytorch_model.bin").exists():
        return torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True), {}
    raise FileNotFoundError(f"{folder}: no model.safetensors, index or pytorch_model.bin in it")


# ---- the saved models of a run ---------------------------------------------------------------------------------


def checked_state(checkpoint: Path) -> dict:
    """state.json of a checkpoint, after the checksums in it have been verified; the optimizer's file is not read."""
    path = checkpoint / "state.json"
    text = path.read_bytes()
    body, mark, last = text.rpartition(b',\n  "crc32": "')
    if not mark or last != b'%08x"\n}\n' % zlib.crc32(body):
        raise ValueError(f"{path}: corrupted: its last line is not the checksum (CRC-32) of the text before it")
    state = json.loads(text)
    for name, expected in state["files"].items():
        if name == "optimizer.safetensors":
            continue
        content = (checkpoint / name).read_bytes()
        if (len(content), zlib.crc32(content)) != (expected["size"], expected["crc32"]):
            raise ValueError(f"{checkpoint / name}: corrupted: size or checksum differs from state.json")
    return state


def read_metadata(path: Path) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            return json.loads(file.read(min(size, 100_000_000))).get("__metadata__", {})
    except (OSError, ValueError):
        return {}


def final_step(folder: Path) -> tuple[int | None, bool]:
    """The step of the final model of a run, if it is known, and whether it is newer than checkpoints up to that step."""
    logged, has_log = 0, (folder / "metrics.jsonl").exists()
    if has_log:
        lines = (folder / "metrics.jsonl").read_text().split("\n")[:-1]
        found = re.match(r'\{"step":(\d+)', lines[-1]) if lines else None
        logged = int(found[1]) if found else 0
    step = read_metadata(folder / "model.safetensors").get("ddl_step")
    if step is None and logged and (folder / "recipe.yaml").exists():
        found = re.search(r"^steps:\s*(\d+)\s*$", (folder / "recipe.yaml").read_text(errors="replace"), re.M)
        step = logged if found and int(found[1]) == logged else None
    step = None if step is None else int(step)
    return step, step is not None and not (has_log and logged < step)


def unchecked_state(checkpoint: Path) -> dict:
    """state.json of a checkpoint; empty if it cannot be read."""
    try:
        return json.loads((checkpoint / "state.json").read_bytes())
    except (OSError, ValueError):
        return {}


def validation_loss(checkpoint: Path) -> float | None:
    return unchecked_state(checkpoint).get("val_loss")


def first_valid(candidates: list[Path], run: Path) -> Path:
    """The first that is not corrupted. The checksums of the final model of the run are not compared."""
    problems = []
    for path in candidates:
        try:
            if path != run:
                checked_state(path)
        except (OSError, ValueError, KeyError) as problem:
            problems.append(problem)
            continue
        for problem in problems:
            LOG.warning("%s; skipped", problem)
        return path
    raise problems[0]


def find_model(folder, which="last") -> Path:
    """The model folder that `which` names in a run folder (last, best, final or a step); another folder is its own last
    and final model."""
    folder, which = Path(folder), str(which)
    if which not in ("last", "best", "final") and not re.fullmatch("[0-9]+", which):
        raise ValueError(f"which: expected last, best, final or a step, found {which!r}")
    names = (p.name[11:] for p in folder.glob("checkpoint-*"))
    checkpoints = {s: folder / f"checkpoint-{s}" for s in sorted(int(n) for n in names if re.fullmatch("[0-9]{1,19}", n))}
    if not checkpoints and not (folder / "recipe.yaml").exists() and not (folder / "metrics.jsonl").exists():
        if which not in ("last", "final"):
            raise FileNotFoundError(f"{folder}: no model {which!r}: expected a run folder")
        return folder
    by_time = [path for path in reversed(checkpoints.values()) if unchecked_state(path).get("by_time")]
    kept = {s: path for s, path in checkpoints.items() if path not in by_time}
    has_final = (folder / "config.json").exists() and (folder / "model.safetensors").exists()
    step, is_current = final_step(folder) if has_final else (None, False)
    final = "the final model" + ("" if step is None else f" (step {step})")
    if which == "last":
        wanted, candidates = "a checkpoint or a final model", list(reversed(kept.values()))
        if has_final:
            candidates.insert(sum(s > step for s in kept) if is_current else len(kept), folder)
        candidates += by_time  # the run is about to remove them
    elif which == "best":
        losses = {path: loss for path in kept.values() if (loss := validation_loss(path)) is not None}
        wanted, candidates = "a checkpoint with a validation loss", sorted(losses, key=losses.get)
    elif which == "final":
        wanted, candidates = "a final model", [folder] if has_final else []
    else:
        wanted = f"a checkpoint of step {which}"
        candidates = [checkpoints[int(which)]] if int(which) in checkpoints else [folder] if step == int(which) else []
    if not candidates:
        found = [path.name for path in checkpoints.values()] + ([final] if has_final else [])
        raise FileNotFoundError(f"{folder}: expected {wanted}, found {', '.join(found) or 'no model'}")
    path = first_valid(candidates, folder)
    LOG.info("%s: using %s", folder, final if path == folder else path.name)
    return path


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether dtype, shape and every bit are equal: NaN equals itself."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(*(t.reshape(-1).contiguous().view(torch.uint8) for t in (a, b)))


def load(folder, dtype: torch.dtype | None = torch.float32, device="cpu", ignore_extra: bool = False, which="last") -> Model:
    """The model of a folder, its parameters as `dtype` (None: as they are stored), and the files of its tokenizer. Of a
    run folder `which` selects the saved model (find_model). The folder that was read is the attribute `folder`."""
    folder = find_model(folder, which)
    tensors, metadata = read_tensors(folder)
    head, wte = tensors.pop("lm_head.weight", None), "transformer.wte.weight"
    if head is not None and not same_bits(tensors.setdefault(wte, head), head):
        raise ValueError(f"{folder}: lm_head.weight differs from {wte}; they are tied")
    raw = json.loads((folder / "config.json").read_text())
    cfg = config_from(raw, {k: tuple(t.shape) for k, t in tensors.items()}, metadata, folder / "config.json")
    with torch.device("meta"):  # shapes only: the values come from the file
        model = Model(cfg)
    shapes = {k: t.shape for k, t in model.state_dict().items()}
    missing, extra = [k for k in shapes if k not in tensors], [k for k in tensors if k not in shapes]
    if missing:
        raise ValueError(f"{folder}: these tensors are missing: {', '.join(missing)}")
    if extra and not ignore_extra:
        raise ValueError(f"{folder}: these tensors are not parameters (ignore_extra=True ignores them): {', '.join(extra)}")
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            raise ValueError(f"{folder}: {name} has shape {tuple(tensors[name].shape)}, config.json requires {tuple(shape)}")
    model.load_state_dict({k: tensors[k].to(dtype or tensors[k].dtype) for k in shapes}, assign=True)
    model.tokenizer = {name: (folder / name).read_bytes() for name in TOKENIZER_FILES if (folder / name).is_file()}
    model.folder = folder
    return model.to(device)


def save(model: Model, folder, dtype: torch.dtype | None = None, lm_head: bool = True) -> None:
    """config.json with the release's keys, model.safetensors with ddl's own keys as metadata, the tokenizer's files."""
    folder, cfg = Path(folder), model.config
    folder.mkdir(parents=True, exist_ok=True)
    written = {k: getattr(cfg, k) for k in RELEASE_KEYS}
    written["ddl_state_shortconv_kernel_size"] = cfg.state_kernel
    written["ddl_state_read_init"] = cfg.ddl_state_read_init or 1.0 / cfg.ddl_value_channels
    if cfg.ddl_value_channels == 1:
        written |= {alias: written[key] for alias, key in ALIASES.items()}
    own = {k: getattr(cfg, k) for k in OWN_KEYS}
    metadata = {"format": "pt"} | {k: to_metadata(value) for k, value in own.items() if value is not None}
    tensors = {k: t.to(dtype) if dtype else t for k, t in model.state_dict().items()}
    if lm_head:
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"]
    (folder / "checksums.json").unlink(missing_ok=True)  # of files that are replaced
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    write_safetensors(folder / "model.safetensors", tensors, metadata)
    for name, content in model.tokenizer.items():
        (folder / name).write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    info = verbs.add_parser("info")
    info.add_argument("dir")
    convert = verbs.add_parser("convert")
    convert.add_argument("dir")
    convert.add_argument("out")
    convert.add_argument("--dtype", choices=SHORT, help="of every tensor (default: as they are)")
    convert.add_argument("--ignore-extra", action="store_true", help="leave out tensors that are not parameters")
    for verb in (info, convert):
        verb.add_argument("--which", default="last", help="saved model of a run folder: last, best, final, or a step")
    a = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="ddl_torch: %(message)s")
    try:
        model = load(a.dir, dtype=None, ignore_extra=a.verb == "info" or a.ignore_extra, which=a.which)
        if a.verb == "convert":
            save(model, a.out, dtype=SHORT.get(a.dtype))
    except (OSError, ValueError) as problem:
        sys.exit(f"ddl_torch: {problem}")
    if a.verb == "info":
        print(model)
        print(f"{sum(p.numel() for p in model.parameters())} parameters")


if __name__ == "__main__":
    main()
