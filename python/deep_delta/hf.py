"""Models of ddl as classes of Hugging Face's transformers. Importing this module registers them with AutoConfig and
AutoModelForCausalLM; `ddl export --hf` writes the folders that from_pretrained reads. The computation is ddl_torch's.
"""
from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any

import ddl_torch
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

__all__ = ["DeepDeltaConfig", "DeepDeltaForCausalLM"]

# The name of the cache among the outputs: versions of transformers differ.
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"
FIELDS = {field.name: field.default for field in dataclasses.fields(ddl_torch.Config)}


class DeepDeltaConfig(PretrainedConfig):  # type: ignore[misc]
    """The keys of config.json (docs/formats.md), with the defaults of ddl_torch.Config, and those of transformers."""

    model_type = "deep_delta"
    attribute_map = {"max_position_embeddings": "block_size"}
    keys_to_ignore_at_inference = ["cache", "past_key_values"]

    def __init__(self, **keys: Any) -> None:
        native = ddl_torch.Config(**{name: keys.pop(name) for name in FIELDS if name in keys})
        for name in FIELDS:
            setattr(self, name, getattr(native, name))
        self.use_cache = keys.pop("use_cache", True)
        keys.setdefault("tie_word_embeddings", True)
        super().__init__(**keys)

    def native(self) -> ddl_torch.Config:
        """The same as ddl_torch has it."""
        return ddl_torch.Config(**{name: getattr(self, name) for name in FIELDS})


class DeepDeltaCache(ddl_torch.Past):  # type: ignore[misc]
    """Earlier tokens of a generation, as generate() uses it."""

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens so far."""
        return int(self.length)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Continues with other sequences of the batch."""
        self.select(beam_idx)


def hides_padding(mask: torch.Tensor | None) -> bool:
    """Whether an attention_mask (B, T) has padding before a token: padding at the end has no effect on a causal model."""
    return mask is not None and bool((mask[:, 1:] > mask[:, :-1]).any())


class DeepDeltaForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A model of ddl with its language modeling head. Parameters carry the names of ddl's files."""

    config_class = DeepDeltaConfig
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["Block"]
    _keys_to_ignore_on_load_unexpected = [r"lm_head\.weight"]

    def __init__(self, config: DeepDeltaConfig) -> None:
        super().__init__(config)
        body = ddl_torch.Model(config.native())
        for name, child in body.named_children():
            self.add_module(name, child)
        self.body = (body,)  # in a tuple: its modules are those of this one, not twice
        self.gradient_checkpointing = False
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """The initial values of docs/formats.md, for parameters that no file had."""
        names = {parameter: name for name, parameter in self.named_parameters()}
        for parameter in module.parameters(recurse=False):
            if not getattr(parameter, "_is_hf_initialized", False):
                name = names.get(parameter, "transformer.wte.weight")  # resize_token_embeddings makes an embedding
                ddl_torch.initialize(self.body[0].config, name, parameter)

    def get_input_embeddings(self) -> nn.Module:
        """The embedding (V, d), which is the head's matrix too."""
        embedding: nn.Module = self.transformer["wte"]
        return embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replaces it."""
        self.transformer["wte"] = value

    def get_output_embeddings(self) -> None:
        """None: the head has no matrix of its own."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """False: generate() leaves it to forward() to make the cache."""
        return False

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, cache: DeepDeltaCache | None = None,
                                      past_key_values: DeepDeltaCache | None = None,
                                      attention_mask: torch.Tensor | None = None, use_cache: bool = True,
                                      **rest: Any) -> dict[str, Any]:
        """The tokens (B, T) that the cache does not have yet."""
        past = cache if cache is not None else past_key_values
        return {"input_ids": input_ids[:, past.length:] if past is not None else input_ids, "cache": past,
                "attention_mask": attention_mask, "use_cache": use_cache, "logits_to_keep": 1}

    def past(self, given: DeepDeltaCache | None, mask: torch.Tensor | None, keep: bool) -> DeepDeltaCache | None:
        """What a pass reads and extends; None where the tokens are all there is, without padding before them."""
        if given is not None and not isinstance(given, ddl_torch.Past):
            raise TypeError(f"cache: expected the cache of an earlier output, found {type(given).__name__}")
        padded = hides_padding(mask)
        if given is None and not keep and not padded:
            return None
        past = given if given is not None else DeepDeltaCache(keep=keep)
        past.valid = mask.bool() if mask is not None and (padded or past.valid is not None) else None
        return past

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None,
                labels: torch.Tensor | None = None, cache: DeepDeltaCache | None = None,
                past_key_values: DeepDeltaCache | None = None, use_cache: bool | None = None,
                logits_to_keep: int = 0, **options: Any) -> CausalLMOutputWithPast:
        """Tokens (B, T) -> logits (B, T, V), or of the last logits_to_keep positions. labels (B, T), -100 where there is
        none: the mean loss of each token's successor. attention_mask (B, tokens of the cache and T): 0 for padding.
        """
        body = self.body[0]
        if getattr(self, "_is_replica", False):  # of DataParallel: it has copies of the modules
            body = copy.copy(body)
            body._modules = self._modules
        given = cache if cache is not None else past_key_values
        trains = self.gradient_checkpointing and self.training
        keep = (self.config.use_cache if use_cache is None else use_cache) and labels is None and not trains
        past = self.past(given, attention_mask, bool(keep))
        body.checkpoint = self._gradient_checkpointing_func if trains else None
        logits = body.head(body.hidden(input_ids, past)[:, -logits_to_keep if logits_to_keep else 0:])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, vocab_size=logits.shape[-1], **options)
        kept = past if past is not None and past.keep else None
        return CausalLMOutputWithPast(loss=loss, logits=logits, **{CACHE: kept})

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any] | None = None, **rest: Any) -> None:
        """Recomputes blocks in the backward pass; without reentrant checkpoints, which cannot pass lists of tensors."""
        options = {**(gradient_checkpointing_kwargs or {}), "use_reentrant": False}
        self._set_gradient_checkpointing(True, functools.partial(checkpoint, **options))


AutoConfig.register("deep_delta", DeepDeltaConfig, exist_ok=True)
AutoModelForCausalLM.register(DeepDeltaConfig, DeepDeltaForCausalLM, exist_ok=True)
