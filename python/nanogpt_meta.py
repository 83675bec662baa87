#!/usr/bin/env python3
"""Converts nanoGPT's meta.pkl, a vocabulary of characters, to tokenizer.json.

    python3 python/nanogpt_meta.py DATA/meta.pkl --out DIR

meta.pkl is a pickle of {"vocab_size": n, "itos": {id: character}, "stoi": {character: id}}. It is read
without executing anything: a pickle that refers to a class or a function is refused.
"""

import argparse
import json
import os
import pickle
import sys


class Reader(pickle.Unpickler):
    """Reads dictionaries, strings and integers."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"expected dictionaries, strings and integers, found {module}.{name}")

    def persistent_load(self, pid):
        raise pickle.UnpicklingError("expected dictionaries, strings and integers, found an external object")


def characters_of(meta):
    """The characters by id; ValueError, with the reason, for another object."""
    if not isinstance(meta, dict) or not isinstance(meta.get("itos"), dict):
        raise ValueError("expected a dictionary with the key itos")
    itos = meta["itos"]
    n = len(itos)
    if n == 0 or any(type(i) is not int for i in itos) or sorted(itos) != list(range(n)):
        raise ValueError("itos: expected the ids 0, 1, ... without a gap")
    if meta.get("vocab_size", n) != n:
        raise ValueError(f"vocab_size: expected {n}, the characters of itos, found {meta['vocab_size']!r}")
    for i, c in itos.items():
        if not isinstance(c, str) or len(c) != 1 or c == "\0" or 0xD800 <= ord(c) < 0xE000:
            raise ValueError(f"itos[{i}]: expected one character, found {c!r}")
    text = [itos[i] for i in range(n)]
    if len(set(text)) != n:
        raise ValueError("itos: two ids have the same character")
    if "stoi" in meta and meta["stoi"] != {c: i for i, c in enumerate(text)}:
        raise ValueError("stoi: expected the inverse of itos")
    return text


def tokenizer_of(characters):
    """tokenizer.json as `ddl tokenizer train --characters` writes it, without special tokens."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {c: i for i, c in enumerate(characters)},
            "merges": [],
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("meta", help="nanoGPT's meta.pkl")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for tokenizer.json")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing tokenizer.json")
    options = parser.parse_args()
    path = os.path.join(options.out, "tokenizer.json")
    if os.path.exists(path) and not options.overwrite:
        sys.exit(f"{path}: exists already: choose another folder or use --overwrite")
    try:
        with open(options.meta, "rb") as file:
            characters = characters_of(Reader(file).load())
    except OSError as error:
        sys.exit(f"{options.meta}: cannot open: {error.strerror}")
    except Exception as error:  # a damaged pickle raises errors of many types
        sys.exit(f"{options.meta}: not nanoGPT's meta.pkl: {error}")
    os.makedirs(options.out, exist_ok=True)
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(tokenizer_of(characters), file, ensure_ascii=False, indent=1)
    os.replace(temporary, path)
    print(f"{path}: {len(characters)} characters")


if __name__ == "__main__":
    main()
