"""Tests python/probe_states.py: labels that a state has or has not, and the states of a model that ddl saved; and
python/pointer_states.py."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

SOURCE, SCRATCH = Path(os.environ["DDL_SOURCE_DIR"]), Path(os.environ["DDL_SCRATCH"])
PROGRAM = os.environ["DDL_PROGRAM"]


def script(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SOURCE / "python/probe_states.py"), *map(str, arguments)]
    return subprocess.run(command, cwd=SCRATCH, capture_output=True, text=True, encoding="utf-8")


def figures(*arguments: object) -> dict:
    result = script(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def made_up() -> None:
    """0.attn has the label in one direction, 0.mlp has noise."""
    generator = np.random.default_rng(1)
    n, d, seq = 800, 6, 20
    labels = generator.integers(0, 2, n)
    noise = generator.normal(size=(n, d, 1)).astype(np.float32)
    known = noise.copy()
    known[:, 2, 0] = 4 * labels - 2 + 0.5 * noise[:, 2, 0]
    index = np.arange(n, dtype=np.int64)
    save_file({"0.attn": known, "0.mlp": noise, "tokens": index % 7, "positions": index % seq, "index": index},
              SCRATCH / "states.safetensors")
    (SCRATCH / "labels.txt").write_text("\n".join(map(str, labels)))
    found = figures("states.safetensors", "--labels", "labels.txt")
    assert found["fitted"] == 600 and found["tested"] == 200
    assert found["accuracy"]["0.attn"] > 0.97, found
    assert abs(found["accuracy"]["0.mlp"] - 0.5) < 0.12, found
    (SCRATCH / "labels.txt").write_text("1\n0\n1\n")
    result = script("states.safetensors", "--labels", "labels.txt")
    assert result.returncode == 1 and "expected a label for each of 800 tokens, found 3" in result.stderr
    for wrong, where in (("", 1), ("1 0", 401)):
        lines = [str(label) for label in labels]
        lines.insert(where - 1, wrong)
        (SCRATCH / "labels.txt").write_text("\n".join(lines))
        result = script("states.safetensors", "--labels", "labels.txt")
        assert result.returncode == 1 and f"labels.txt:{where}: expected one label, found '{wrong}'" in result.stderr


def of_a_model() -> None:
    """The token itself is in the state after the first sublayer of any model."""
    generator = np.random.default_rng(2)
    (SCRATCH / "text.txt").write_text("".join(generator.choice(list("abcd"), 2000)))
    subprocess.run([PROGRAM, "tokenizer", "train", "text.txt", "--characters", "--out", "tok", "--overwrite",
                    "--quiet"],
                   cwd=SCRATCH, check=True)
    subprocess.run([PROGRAM, "data", "build", "text.txt", "--tokenizer", "tok", "--val-fraction", "0", "--out", "shards",
                    "--quiet", "--overwrite"], cwd=SCRATCH, check=True)
    subprocess.run([PROGRAM, "train", "--model", "ddl-cc", "--size", "micro", "--hidden-size", "32", "--seq", "16",
                    "--batch", "2", "--steps", "2", "--warmup", "0", "--train-data", "shards", "--tokenizer", "tok",
                    "--out", "run", "--overwrite", "--quiet"], cwd=SCRATCH, check=True)
    subprocess.run([PROGRAM, "inspect", "run", "--text", "text.txt", "--tokens", "1024", "--save-states",
                    "states.safetensors", "--save-sublayers", "0.attn,1.mlp", "--quiet"],
                   cwd=SCRATCH, check=True, stdout=subprocess.DEVNULL)
    tensors = load_file(SCRATCH / "states.safetensors")
    assert tensors["0.attn"].shape == (1024, 32, 4) and "0.mlp" not in tensors
    found = figures("states.safetensors", "--offset", "0")
    assert found["accuracy"]["0.attn"] > 0.9, found
    assert figures("states.safetensors", "--offset", "3")["most_frequent"] < 0.5


def of_pointers() -> None:
    """The symbol itself is in every state; the script checks its labels against the answers."""
    runs = SCRATCH / "pointers"
    shutil.rmtree(runs, ignore_errors=True)
    subprocess.run([PROGRAM, "data", "synthetic", "pointer", "--cycle", "--pair-tokens", "--pairs", "8", "--once", "--hops",
                    "4", "--sequences", "40", "--val-sequences", "60", "--out", "pointer", "--overwrite", "--quiet"],
                   cwd=SCRATCH, check=True, stdout=subprocess.DEVNULL)
    for model in ("ddl-1", "baseline"):
        name = "delta" if model == "ddl-1" else "add"
        subprocess.run([PROGRAM, "train", "--model", model, "--size", "micro", "--num-hidden-layers", "2", "--hidden-size",
                        "32", "--embedding-init-std", "0.5", "--block-size", "34", "--seq", "34", "--order", "aligned",
                        "--batch", "2", "--steps", "2", "--warmup", "0", "--train-data", "pointer", "--val-data", "none",
                        "--tokenizer", "pointer", "--out", str(runs / f"{name}_seed=1"), "--quiet"], cwd=SCRATCH, check=True)
    command = [sys.executable, str(SOURCE / "python/pointer_states.py"), str(runs)]
    options = ["--shards", str(SCRATCH / "pointer"), "--sequences", "60", "--ddl", PROGRAM]
    first = subprocess.run(command + options, capture_output=True, text=True, encoding="utf-8")
    assert first.returncode == 0, first.stderr
    states = json.loads((runs / "delta_seed=1/states.json").read_text(encoding="utf-8"))
    assert list(states)[:2] == ["", "no erase term"] and list(states[""]) == ["0.attn", "0.mlp", "1.attn", "1.mlp"]
    assert all(len(row) == 5 and row[0] > 0.9 > row[4] for row in states[""].values()), states
    assert states[""] != states["no erase term"]
    assert list(json.loads((runs / "add_seed=1/states.json").read_text(encoding="utf-8"))) == [""]
    empty = subprocess.run([*command[:2], str(SCRATCH)], capture_output=True, text=True, encoding="utf-8")
    assert empty.returncode == 1 and "no runs (NAME_seed=N)" in empty.stderr
    again = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert again.returncode == 0 and again.stdout == first.stdout
    assert "delta, no erase term" in first.stdout and first.stdout.count("add  ") == 2


made_up()
of_a_model()
of_pointers()
print("ok")
