#!/usr/bin/env python3
"""What the states of the models of recipes/e2/pointer-states.yaml hold of each hop of a pointer.

For each sublayer, linear probes predict p^j(s), the symbol j hops after s, from the state at the position where the
model predicts the answer p^4(s). Their accuracies on other sequences are written to states.json in the run's folder;
a run that has one is not measured again. Two tables of means over seeds are printed: the highest accuracy after any
sublayer, and that after the last one; and what is left of the hop before where a hop has appeared.

    python3 python/pointer_states.py runs/e2-pointer-states --shards data/shards/pointer-once/report

Needs NumPy, scikit-learn and safetensors.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from probe_states import probe, sublayer_names
from safetensors.numpy import load_file

PAIRS, HOPS, LENGTH = 8, 4, 34  # of the recipe's task; a sequence: <|endoftext|>, pairs, "|", queries (h, s, answer)
APPEARED = 0.5


def symbol_number(text: str) -> int:
    """The number of a symbol of `ddl data synthetic`: a to z, A to Z, then letters from U+0100 on."""
    code = ord(text)
    if code >= 0x100:
        return 52 + code - 0x100
    return code - ord("a") if text >= "a" else 26 + code - ord("A")


def read_queries(shards: Path, sequences: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the queries whose answer counts: the place of s among all tokens (n), and p^0(s) to p^4(s) (n, 5)."""
    vocabulary = json.loads((shards / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    symbol = {number: symbol_number(text) for text, number in vocabulary.items() if text.isalpha()}
    tokens = np.fromfile(shards / "val_000000.bin", dtype="<u2")[512:].reshape(-1, LENGTH)[:sequences]
    mask = np.fromfile(shards / "val_000000.mask", dtype="u1").reshape(-1, LENGTH)[:sequences]
    places, symbols = [], []
    for row, (sequence, counted) in enumerate(zip(tokens, mask)):
        after = dict(divmod(symbol[pair] - PAIRS, PAIRS) for pair in sequence[1 : 1 + PAIRS].tolist())
        for answer in np.flatnonzero(counted).tolist():
            hops = [symbol[int(sequence[answer - 1])]]
            while len(hops) <= HOPS:
                hops.append(after[hops[-1]])
            if hops[-1] != symbol[int(sequence[answer])]:
                sys.exit(f"{shards}: expected queries for {HOPS} hops around a cycle of {PAIRS} symbols")
            places.append(row * LENGTH + answer - 1)
            symbols.append(hops)
    return np.array(places), np.array(symbols)


def read_states(run: Path, arguments: argparse.Namespace, force: list[str]) -> dict[str, np.ndarray]:
    """The states after each sublayer at the places of read_queries, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "states.safetensors"
        command = [arguments.ddl, "inspect", str(run), "--val-data", str(arguments.shards), "--seq", str(LENGTH)]
        command += ["--tokens", str(arguments.sequences * LENGTH), "--spectrum-tokens", "0", "--threads", "1"]
        command += ["--quiet", "--save-counted", "--save-states", str(file)]
        command += [word for spec in force for word in ("--force", spec)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return load_file(file)


def measure(run: Path, arguments: argparse.Namespace, queries: tuple, force: list[str]) -> dict[str, list[float]]:
    """The accuracies of the probes for p^0(s) to p^4(s) after each sublayer; queries: of read_queries."""
    places, symbols = queries
    states = read_states(run, arguments, force)
    assert np.array_equal(states["index"], places)
    tested = np.random.default_rng(0).permutation(arguments.sequences)[: arguments.sequences // 4]
    fitted = ~np.isin(places // LENGTH, tested)
    return {name: [probe(states[name].reshape(len(places), -1), symbols[:, j], fitted, 1.0)
                   for j in range(HOPS + 1)] for name in sublayer_names(states)}


def appeared(accuracy: dict[str, list[float]], hop: int) -> str | None:
    """The first sublayer after which p^hop(s) can be read."""
    return next((name for name, row in accuracy.items() if row[hop] >= APPEARED), None)


def without_erase_from(accuracy: dict[str, list[float]]) -> list[str]:
    """Specs of --force that leave out the erase term from the sublayer on after which p^2(s) has appeared."""
    first = appeared(accuracy, 2)
    if first is None:
        return []
    layer, last = int(first.split(".")[0]), max(int(name.split(".")[0]) for name in accuracy)
    here = [f"layers={layer}" + (",sub=mlp" if first.endswith("mlp") else "") + ",update=write"]
    return here + ([f"layers={layer + 1}-{last},update=write"] if layer < last else [])


def measure_run(run: Path, arguments: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """The accuracies in the model as trained, and of the delta rule also without erase terms."""
    file = run / "states.json"
    if file.exists():
        if arguments.shards:
            print(f"{run}: measured before; remove states.json to measure again", file=sys.stderr)
        return json.loads(file.read_text(encoding="utf-8"))
    if not arguments.shards:
        sys.exit(f"{run}: no states.json: expected --shards")
    queries = read_queries(arguments.shards, arguments.sequences)
    found = {"": measure(run, arguments, queries, [])}
    if run.name.startswith("delta"):
        found["no erase term"] = measure(run, arguments, queries, ["update=write"])
        late = without_erase_from(found[""])
        if late:
            found["none once p^2 is there"] = measure(run, arguments, queries, late)
    file.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("runs", type=Path, help="folder of the sweep")
    parser.add_argument("--shards", type=Path, help="validation shards, for runs without a states.json")
    parser.add_argument("--sequences", type=int, default=1000, help="validation sequences to read")
    parser.add_argument("--ddl", default="ddl", help="the program")
    arguments = parser.parse_args()
    table: dict[str, list[np.ndarray]] = {}
    before: dict[str, list[list[float]]] = {}
    runs = sorted(arguments.runs.glob("*_seed=*"))
    if not runs:
        sys.exit(f"{arguments.runs}: no runs (NAME_seed=N)")
    for run in runs:
        for condition, accuracy in measure_run(run, arguments).items():
            name = re.sub("_seed=.*", "", run.name) + (", " + condition if condition else "")
            rows = np.array(list(accuracy.values()))
            table.setdefault(name, []).append(np.stack([rows.max(axis=0), rows[-1]]))
            before.setdefault(name, []).append([accuracy[at][j - 1] if (at := appeared(accuracy, j)) else np.nan
                                                for j in range(1, HOPS + 1)])
    print("accuracy: highest after any sublayer, after the last")
    print("model                         seeds " + "".join(f"{f'p^{j}(s)':>14s}" for j in range(HOPS + 1)))
    for name, values in table.items():
        highest, last = np.mean(values, axis=0)
        print(f"{name:30s}{len(values):5d} " + "".join(f"{high:8.2f}{end:6.2f}" for high, end in zip(highest, last)))
    print(f"\naccuracy of the hop before where that of a hop is first {APPEARED}, and in how many seeds it is")
    for name, rows in before.items():
        known = np.array(rows)
        cells = ((np.nanmean(column) if seen else np.nan, seen)
                 for column, seen in zip(known.T, np.isfinite(known).sum(axis=0)))
        print(f"{name:30s}{len(rows):5d} " + " " * 14 + "".join(f"{mean:8.2f}{seen:6d}" for mean, seen in cells))


if __name__ == "__main__":
    main()
