"""Writes a model for llama.cpp: python llama_model.py FILE [--size small] [--dtype f32|bf16|q8] [--vocabulary]

The baseline's shapes with random weights (architecture qwen3: RMSNorm, RoPE, QK-norm, SwiGLU, tied embedding; only the order of
QK-norm and RoPE differs from ours, not the work). --vocabulary: with the tokenizer of data/tokenizer, for a server. Needs: pip
install gguf
"""
import argparse
import json
from pathlib import Path

import gguf
import numpy as np

TOKENIZER = Path(__file__).resolve().parents[2] / "data/tokenizer"
VOCAB = 50304
# width, layers, heads, head, MLP, context
SIZES = {"mini": (384, 6, 6, 64, 1024, 512), "small": (768, 12, 6, 128, 2048, 1024)}
TYPES = {"f32": None, "bf16": gguf.GGMLQuantizationType.BF16, "q8": gguf.GGMLQuantizationType.Q8_0}
FILE_TYPES = {"f32": 0, "bf16": 32, "q8": 7}


def add_vocabulary(w: gguf.GGUFWriter) -> None:
    ids = json.loads((TOKENIZER / "encoder.json").read_text())
    tokens = sorted(ids, key=ids.get) + [f"[unused {i}]" for i in range(VOCAB - len(ids))]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.NORMAL] * (len(ids) - 1) + [gguf.TokenType.CONTROL] +
                      [gguf.TokenType.UNUSED] * (VOCAB - len(ids)))
    w.add_token_merges((TOKENIZER / "vocab.bpe").read_text().rstrip("\n").split("\n")[1:])
    w.add_bos_token_id(ids["<|endoftext|>"])
    w.add_eos_token_id(ids["<|endoftext|>"])
    w.add_add_bos_token(False)


def write_model(path: Path, dtype: str, size: str = "small", vocabulary: bool = False) -> None:
    width, layers, heads, head, mlp, context = SIZES[size]
    w, rng = gguf.GGUFWriter(path, "qwen3"), np.random.default_rng(0)
    w.add_block_count(layers)
    w.add_context_length(context)
    w.add_embedding_length(width)
    w.add_feed_forward_length(mlp)
    w.add_head_count(heads)
    w.add_head_count_kv(heads)
    w.add_key_length(head)
    w.add_value_length(head)
    w.add_rope_freq_base(1e4)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(VOCAB)
    if vocabulary:
        add_vocabulary(w)
    else:
        w.add_tokenizer_model("no_vocab")
    w.add_file_type(FILE_TYPES[dtype])

    def norm(name: str, n: int) -> None:
        w.add_tensor(name + ".weight", np.ones(n, np.float32))

    def matrix(name: str, *shape: int) -> None:
        x = (rng.standard_normal(shape) * 0.02).astype(np.float32)
        if TYPES[dtype] is None:
            w.add_tensor(name + ".weight", x)
        else:
            w.add_tensor(name + ".weight", gguf.quants.quantize(x, TYPES[dtype]), raw_dtype=TYPES[dtype])

    matrix("token_embd", VOCAB, width)
    norm("output_norm", width)
    for i in range(layers):
        b = f"blk.{i}."
        norm(b + "attn_norm", width)
        norm(b + "ffn_norm", width)
        norm(b + "attn_q_norm", head)
        norm(b + "attn_k_norm", head)
        for name in ("attn_q", "attn_k", "attn_v"):
            matrix(b + name, heads * head, width)
        matrix(b + "attn_output", width, heads * head)
        matrix(b + "ffn_gate", mlp, width)
        matrix(b + "ffn_up", mlp, width)
        matrix(b + "ffn_down", width, mlp)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--dtype", choices=TYPES, default="f32")
    parser.add_argument("--vocabulary", action="store_true")
    a = parser.parse_args()
    write_model(a.file, a.dtype, a.size, a.vocabulary)


if __name__ == "__main__":
    main()
