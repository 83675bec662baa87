"""Deep Delta Learning in Python: connections for PyTorch, the program ddl, its engine and its runs.

Connection, Reader, Readout, expand, wrap    residual connections for any PyTorch model (needs torch)
patch_llama                                  delta connections in a Llama of transformers
DeepDeltaConfig, DeepDeltaForCausalLM        the classes of transformers (deep_delta.hf, which registers them)
load                                         a model folder or run as a PyTorch module (needs torch)
Engine                                       the same by the C library: losses, logits, sessions, text
runs                                         what a run has written, as numpy arrays
lm_eval                                      the model class of lm-evaluation-harness (deep_delta.lm_eval)
cli                                          the program ddl: cli.train(...), cli.run(...)
gpt2_tokenizer                               the folder of the tokenizer that shards are built with by default
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deep_delta import cli, runs
from deep_delta.engine import Engine, Scores, Session
from deep_delta.errors import DdlError
from deep_delta.paths import gpt2_tokenizer
from deep_delta.version import __version__ as __version__

if TYPE_CHECKING:
    from deep_delta.connection import Connection, Reader, Readout, expand, load, wrap
    from deep_delta.hf import DeepDeltaConfig, DeepDeltaForCausalLM
    from deep_delta.llama import patch_llama

NEEDS_TORCH = ("Connection", "Reader", "Readout", "expand", "load", "wrap")
NEEDS_TRANSFORMERS = ("DeepDeltaConfig", "DeepDeltaForCausalLM")
__all__ = ["DdlError", "Engine", "Scores", "Session", "cli", "gpt2_tokenizer", "runs",
           "Connection", "Reader", "Readout", "expand", "load", "wrap",
           "DeepDeltaConfig", "DeepDeltaForCausalLM", "patch_llama"]


def __getattr__(name: str) -> Any:
    """Names that need torch or transformers are imported when they are first used."""
    if name in NEEDS_TORCH:
        from deep_delta import connection

        return getattr(connection, name)
    if name in NEEDS_TRANSFORMERS:
        from deep_delta import hf

        return getattr(hf, name)
    if name == "patch_llama":
        from deep_delta.llama import patch_llama

        return patch_llama
    raise AttributeError(f"module 'deep_delta' has no attribute {name!r}")
