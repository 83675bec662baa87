"""Tests python/nanogpt_meta.py: meta.pkl and train.bin of characters become a run that generates text; other pickles
are refused without executing anything."""

import array
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE, SCRATCH = Path(os.environ["DDL_SOURCE_DIR"]), Path(os.environ["DDL_SCRATCH"])
PROGRAM = os.environ["DDL_PROGRAM"]


def run(*command: object, text: str = "") -> subprocess.CompletedProcess:
    return subprocess.run(
        [*map(str, command)], cwd=SCRATCH, input=text, capture_output=True, text=True, encoding="utf-8"
    )


def convert(*arguments: object) -> subprocess.CompletedProcess:
    return run(sys.executable, SOURCE / "python/nanogpt_meta.py", *arguments)


def ddl(*arguments: object, text: str = "") -> str:
    done = run(PROGRAM, *arguments, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Harm:
    def __reduce__(self):
        return open, (str(SCRATCH / "harm"), "w")


def main() -> None:
    shutil.rmtree(SCRATCH)
    SCRATCH.mkdir()
    text = (SOURCE / "data/text/tinyshakespeare.txt").read_text()[:20000] + "é€😀"
    characters = sorted(set(text))
    stoi = {c: i for i, c in enumerate(characters)}
    meta = {"vocab_size": len(characters), "itos": dict(enumerate(characters)), "stoi": stoi}
    data = SCRATCH / "data"
    data.mkdir()
    ids = array.array("H", [stoi[c] for c in text])
    (data / "train.bin").write_bytes(ids.tobytes())
    (data / "val.bin").write_bytes(ids[:2000].tobytes())
    (data / "meta.pkl").write_bytes(pickle.dumps(meta))

    # From the data to a sample.
    done = convert("data/meta.pkl", "--out", "tok")
    assert done.returncode == 0, done.stderr
    assert json.loads(ddl("tokenizer", "info", "tok", "--json")) == {
        "vocab_size": len(characters), "characters": True, "merges": 0, "special_tokens": {}}
    assert [int(i) for i in ddl("tokenizer", "encode", "--tokenizer", "tok", text=text).split()] == list(ids)
    assert ddl("tokenizer", "decode", "--tokenizer", "tok", text=" ".join(map(str, ids))) == text
    ddl("train", "--size", "micro", "--hidden-size", 16, "--seq", 32, "--batch", 2, "--steps", 3, "--warmup", 0,
        "--val-tokens", 64, "--train-data", "data", "--tokenizer", "tok", "--out", "run", "--quiet")
    sample = ddl("generate", "run", "--prompt", "ROMEO:", "--max-tokens", 20)
    assert sample.startswith("ROMEO:") or len(sample.strip()) > 0
    done = run(PROGRAM, "generate", "run", "--prompt", "naï", "--max-tokens", 2)
    assert done.returncode == 1 and "prompt: byte 2 (line 1)" in done.stderr and "'ï' (U+00EF)" in done.stderr

    # Messages.
    done = convert("data/meta.pkl", "--out", "tok")
    assert done.returncode == 1 and "exists already: choose another folder or use --overwrite" in done.stderr
    assert convert("data/meta.pkl", "--out", "tok", "--overwrite").returncode == 0
    bad = {
        "found builtins.open": Harm(), "found io.open": Harm(), "key itos": [1, 2], "ids 0, 1": {"itos": {1: "a"}},
        "found 'ab'": {"itos": {0: "ab"}}, "the same character": {"itos": {0: "a", 1: "a"}},
        "the inverse": {"itos": {0: "a"}, "stoi": {"a": 1}}, "vocab_size": {"itos": {0: "a"}, "vocab_size": 2},
    }
    for gist, content in bad.items():
        (SCRATCH / "bad.pkl").write_bytes(pickle.dumps(content))
        done = convert("bad.pkl", "--out", "bad")
        assert done.returncode == 1 and done.stderr.startswith("bad.pkl: not nanoGPT's meta.pkl: "), done.stderr
        assert "open" in gist or gist in done.stderr, done.stderr
        assert not (SCRATCH / "harm").exists() and not (SCRATCH / "bad").exists()
    (SCRATCH / "bad.pkl").write_bytes(pickle.dumps(meta)[:40])
    assert "not nanoGPT's meta.pkl" in convert("bad.pkl", "--out", "bad").stderr
    assert "cannot open" in convert("absent.pkl", "--out", "bad").stderr


main()
