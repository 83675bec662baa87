#!/usr/bin/env python3
"""Linear probes on the states that `ddl inspect --save-states FILE` writes.

For each sublayer in FILE, a logistic regression predicts a label of each token from the state after the sublayer, and
its accuracy on tokens that it was not fitted to is printed, with that of the most frequent label.

    python3 python/probe_states.py states.safetensors --offset 1            # the token before
    python3 python/probe_states.py states.safetensors --labels labels.txt   # a label per token of the text, "-": none

Needs NumPy, scikit-learn and safetensors.
"""

import argparse
import json
import sys

import numpy as np
from safetensors.numpy import load_file
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def read_labels(arguments: argparse.Namespace, tensors: dict) -> np.ndarray:
    """The label of each token in the file; "-" for none."""
    if arguments.labels:
        with open(arguments.labels, encoding="utf-8") as file:
            lines = file.read().splitlines()
        if len(lines) <= tensors["index"].max():
            sys.exit(f"{arguments.labels}: expected a label for each of {tensors['index'].max() + 1} tokens, "
                     f"found {len(lines)}")
        for number, line in enumerate(lines, 1):
            if len(line.split()) != 1:
                sys.exit(f"{arguments.labels}:{number}: expected one label, found '{line}'")
        return np.array(lines)[tensors["index"]]
    token_at = dict(zip(tensors["index"].tolist(), tensors["tokens"].tolist()))
    labels = []
    for index, position in zip(tensors["index"].tolist(), tensors["positions"].tolist()):
        known = position >= arguments.offset and index - arguments.offset in token_at
        labels.append(str(token_at[index - arguments.offset]) if known else "-")
    return np.array(labels)


def sequences_of(tensors: dict) -> np.ndarray:
    """Which sequence each token is in: tokens of a sequence are either all fitted to or all tested on."""
    return tensors["index"] - tensors["positions"]


def sublayer_names(tensors: dict) -> list:
    """The names of the states, in the order of the sublayers."""
    return sorted((name for name in tensors if "." in name),
                  key=lambda name: (int(name.split(".")[0]), name.split(".")[1] != "attn"))


def probe(states: np.ndarray, labels: np.ndarray, fitted: np.ndarray, c: float) -> float:
    model = make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=1000))
    model.fit(states[fitted], labels[fitted])
    return float(model.score(states[~fitted], labels[~fitted]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file", help="file of ddl inspect --save-states")
    parser.add_argument("--labels", help="text file with a label for each token that was inspected; '-': none")
    parser.add_argument("--offset", type=int, default=1, help="without --labels: predict the token so many before")
    parser.add_argument("--test", type=float, default=0.25, help="share of the sequences that probes are tested on")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of these sequences")
    parser.add_argument("--c", type=float, default=1.0, help="inverse of the L2 penalty")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    tensors = load_file(arguments.file)
    labels = read_labels(arguments, tensors)
    sequences = sequences_of(tensors)
    starts = np.unique(sequences)
    n_test = max(1, round(arguments.test * len(starts)))
    if n_test >= len(starts):
        sys.exit(f"{arguments.file}: expected more than one sequence, found {len(starts)}")
    tested = np.random.default_rng(arguments.seed).permutation(starts)[:n_test]
    known = labels != "-"
    fitted = ~np.isin(sequences, tested)[known]
    labels = labels[known]
    if len(np.unique(labels[fitted])) < 2 or fitted.all():
        sys.exit("expected two different labels to fit to, and a token to test on")
    values, counts = np.unique(labels[fitted], return_counts=True)
    chance = float(np.mean(labels[~fitted] == values[counts.argmax()]))
    accuracy = {}
    for name in sublayer_names(tensors):
        states = tensors[name][known]
        accuracy[name] = probe(states.reshape(len(states), -1), labels, fitted, arguments.c)
    if arguments.json:
        print(json.dumps({"fitted": int(fitted.sum()), "tested": int((~fitted).sum()), "most_frequent": chance,
                          "accuracy": accuracy}))
        return
    print(f"{fitted.sum()} tokens fitted to, {(~fitted).sum()} tested on; most frequent label: {chance:.4f}")
    for name, value in accuracy.items():
        print(f"{name:10s} {value:.4f}")


if __name__ == "__main__":
    main()
