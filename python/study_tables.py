#!/usr/bin/env python3
"""Tables of a study: what the runs of a sweep show, in Markdown, as in docs/study.md and docs/rivals.md.

    python3 study_tables.py losses OUT [--baseline NAME] [--pairs A:B,...]
                                                      final validation losses of groups of seeds, and comparisons
    python3 study_tables.py rates OUT                 losses of the values that `choose` tried
    python3 study_tables.py stream OUT                sizes of the stream and of the updates during training
    python3 study_tables.py gates OUT --val-data DIR  gates of each sublayer
    python3 study_tables.py mixing OUT --val-data DIR weights of the schemes that mix states or values
    python3 study_tables.py groups OUT                accuracies in each group of a mask, from the groups.json of each run
    python3 study_tables.py forces OUT --val-data DIR losses of the trained models with forced updates

OUT is the folder of a sweep: each group is a model, its runs are seeds. Needs nothing but Python 3.9 and the program
(--program), of which it runs `compare`, `inspect` and `eval`. Figures are means over the seeds of a group; ranges are
those of its seeds.
"""
from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

MINUS = "\u2212"


class Failure(Exception):
    pass


def call(options: argparse.Namespace, *arguments: object) -> dict:
    """The JSON object that a command of the program prints."""
    command = [options.program, *map(str, arguments), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{options.program}: {error.strerror}") from error
    if done.returncode != 0:
        raise Failure(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{' '.join(command)}: failed")
    return json.loads(done.stdout)


def sweep_of(options: argparse.Namespace) -> dict:
    try:
        return json.loads((options.out / "sweep.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failure(f"{options.out}/sweep.json: cannot be read: {error}") from error


def groups_of(options: argparse.Namespace) -> dict[str, list[str]]:
    """The finished runs of each setting, in the order of the sweep."""
    groups: dict[str, list[str]] = {}
    for run in sweep_of(options)["runs"]:
        if not run["candidate"] and run["state"] == "finished":
            groups.setdefault(run["setting"], []).append(run["name"])
    if not groups:
        raise Failure(f"{options.out}: no finished runs")
    return groups


# ---- Markdown ----

def number(value: float | None, digits: int) -> str:
    if value is None:
        return ""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", MINUS)


def significant(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}g}".replace("-", MINUS)


def p_value(p: float | None) -> str:
    return "" if p is None else "<0.0001" if p < 1e-4 else f"{p:.4f}"


def table(head: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def mean_and_range(values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return ""
    return f"{number(mean(known), 2)} ({number(min(known), 2)} to {number(max(known), 2)})"


# ---- losses ----

def comparison(options: argparse.Namespace, baseline: str, option: str) -> dict[str, dict]:
    """The groups of `ddl compare` by the name of their setting, with the one of `baseline` as the baseline."""
    settings = groups_of(options)
    if baseline not in settings:
        raise Failure(f"{option}: {baseline or 'no name'}: expected one of {', '.join(settings)}")
    runs = [options.out / run for names in settings.values() for run in names]
    found = call(options, "compare", *runs, "--baseline", options.out / settings[baseline][0], "--val")
    if len(found["groups"]) != len(settings):
        raise Failure(f"{options.out}: expected models with different recipes: ddl compare has "
                      f"{len(found['groups'])} groups for {len(settings)} models")
    setting_of = {Path(run).name: name for name, names in settings.items() for run in names}
    return {setting_of[Path(group["runs"][0]).name]: group for group in found["groups"]}


def losses(options: argparse.Namespace) -> None:
    rows = []
    for name, group in comparison(options, options.baseline, "--baseline").items():
        loss, reach = group["val_loss"], group["reach"]
        is_baseline = name == options.baseline
        tokens = "1.00" if is_baseline else number(reach["tokens_ratio"], 2) or "not reached"
        interval = "" if loss["low"] is None else f"{number(loss['low'], 4)} to {number(loss['high'], 4)}"
        rows.append([name, number(loss["mean"], 4), number(loss["sd"], 4), interval,
                     "" if is_baseline else number(loss["difference"], 4),
                     "" if is_baseline else p_value(loss["welch_p"]),
                     "" if is_baseline else p_value(loss["paired_p"]), tokens])
    table(["model", "mean", "sd", "95 % interval", "difference", "Welch p", "paired p", "tokens"], rows)
    if not options.pairs:
        return
    rows = []
    for pair in options.pairs.split(","):
        model, _, against = pair.partition(":")
        groups = comparison(options, against, "--pairs")
        if model not in groups:
            raise Failure(f"--pairs: {model}: expected one of {', '.join(groups)}")
        loss = groups[model]["val_loss"]
        rows.append([model, against, number(loss["difference"], 4), p_value(loss["welch_p"]),
                     p_value(loss["paired_p"])])
    print()
    table(["model", "against", "difference", "Welch p", "paired p"], rows)


def by_number(text: str) -> tuple[float, str]:
    """A key that sorts numbers before other texts."""
    try:
        return float(text), text
    except ValueError:
        return math.inf, text


def rates(options: argparse.Namespace) -> None:
    choices = sweep_of(options)["choices"]
    if not choices:
        raise Failure(f"{options.out}: the sweep has no section choose")
    # The lists of settings may differ: a list may be extended, or an entry's own; 1e-3 in one is 0.001 in another.
    def key(text: str) -> float | str:
        return text if math.isinf(by_number(text)[0]) else by_number(text)[0]

    values: dict[float | str, str] = {}
    for text in sorted((value["value"] for choice in choices for value in choice["values"]), key=by_number):
        values.setdefault(key(text), text)
    rows = []
    for choice in choices:
        losses = {key(value["value"]): number(value["loss"], 3) for value in choice["values"]}
        chosen = key(choice["chosen"]) if choice["chosen"] else None
        rows.append([choice["setting"], *(f"**{losses[v]}**" if v == chosen else losses.get(v, "") for v in values)])
    table(["model", *values.values()], rows)


# ---- during training ----

def telemetry(options: argparse.Namespace, run: str) -> dict[int, list[dict]]:
    """The sublayers of each telemetry record of a run."""
    with open(options.out / run / "metrics.jsonl", encoding="utf-8") as file:
        records = [json.loads(line) for line in file if '"kind":"telemetry"' in line]
    return {record["step"]: record["sublayers"] for record in records}


def stream(options: argparse.Namespace) -> None:
    groups = groups_of(options)
    records = {name: [telemetry(options, run) for run in runs] for name, runs in groups.items()}
    steps = sorted(set.intersection(*(set(run) for runs in records.values() for run in runs)))
    if not steps:
        raise Failure(f"{options.out}: the runs have no telemetry of the same step (telemetry_every)")
    shown = sorted({steps[0], steps[min(1, len(steps) - 1)], steps[len(steps) // 2], steps[-1]})
    of_updates = sorted({shown[min(1, len(shown) - 1)], steps[-1]})
    rows = []
    for name, runs in records.items():
        sizes = [significant(mean([run[step][-1]["x_rms"] for run in runs])) for step in shown]
        largest = mean([max(sublayer["f_rms"] for sublayer in run[steps[-1]]) for run in runs])
        updates = [mean([mean([sublayer.get("step") for sublayer in run[step]]) for run in runs])
                   for step in of_updates]
        rows.append([name, *sizes, significant(largest), *(significant(update, 2) for update in updates)])
    table(["model", *(f"stream, step {step}" for step in shown), f"largest f, step {steps[-1]}",
           *(f"update, step {step}" for step in of_updates)], rows)


# ---- trained models ----

def inspections(options: argparse.Namespace) -> dict[str, list[dict]]:
    return {name: [call(options, "inspect", options.out / run, "--val-data", options.val_data, "--tokens",
                        options.tokens) for run in runs] for name, runs in groups_of(options).items()}


def title(sublayer: dict) -> str:
    return f"{sublayer['layer']} {'attn' if sublayer['sub'] == 'attn' else 'MLP'}"


def gate_rows(name: str, runs: list[dict]) -> list[list[str]]:
    """The mean gates of the sublayers; with several steps per sublayer, a row for each of them."""
    rows: dict[int, list[str]] = {}
    for same in zip(*(run["sublayers"] for run in runs)):
        values = [s["tau_mean"] if s["beta_mean"] is None else s["beta_mean"] for s in same]
        rows.setdefault(same[0].get("step_index", 0), []).append(mean_and_range(values))
    return [[name if len(rows) == 1 else f"{name}, step {step + 1}", *cells] for step, cells in rows.items()
            if any(cells)]


def gates(options: argparse.Namespace) -> None:
    by_sublayer, overall, head = [], [], []
    for name, runs in inspections(options).items():
        head = max(head, list(dict.fromkeys(map(title, runs[0]["sublayers"]))), key=len)  # models may have fewer layers
        by_sublayer += gate_rows(name, runs)
        every = [s for run in runs for s in run["sublayers"]]
        last = [run["sublayers"][-1] for run in runs]
        figures = ["skip", "match", "over", "reflect", "erase", "write", "step"]
        overall.append([name, *(number(mean([s[key] for s in every]), 2) for key in figures),
                        *(significant(mean([s[key] for s in last])) for key in ("sigma_min", "sigma_max"))])
    if by_sublayer:
        table(["model", *head], [row + [""] * (1 + len(head) - len(row)) for row in by_sublayer])
        print()
    table(["model", "skip", "match", "over", "reflect", "erase", "write", "step", "σ smallest", "σ largest"], overall)


# What `mixing` prints of each sublayer: a name, the key, and whether the figure after the last sublayer is meant.
MIXING = [
    ("diagonal of M", "mix_diagonal", False),
    ("row sum of M", "mix_row", False),
    ("column sum of M", "mix_column", False),
    ("row sum of the product", "product_row", True),
    ("column sum of the product", "product_column", True),
    ("m₀ of f", "mix_f", False),
    ("m₁ of x", "mix_x", False),
    ("m₀ of own values", "values_own", False),
    ("m₁ of values of layer 0", "values_first", False),
]


def mixing(options: argparse.Namespace) -> None:
    rows, sums = [], []
    for name, runs in inspections(options).items():
        for figure, key, at_end in MIXING:
            values = [mean([s[key] for s in (run["sublayers"][-1:] if at_end else run["sublayers"])]) for run in runs]
            if any(value is not None for value in values):
                rows.append([name, figure, mean_and_range(values)])
        for same in zip(*(run.get("averages", []) for run in runs)):
            weights = [number(mean(list(column)), 2) for column in zip(*(one["weights"] for one in same))]
            sums.append([name, str(same[0]["layer"]), ", ".join(weights)])
    if rows:
        table(["model", "figure", "mean (range over seeds)"], rows)
        print()
    if sums:
        table(["model", "sum after layer", "weights, from the embedding to this layer"], sums)


def groups(options: argparse.Namespace) -> None:
    """Shares of answers that are right; groups.json is the output of ddl eval --groups --json."""
    def shares(run: str) -> dict[str, float]:
        text = (options.out / run / "groups.json").read_text(encoding="utf-8")
        found = json.loads(text)["models"][0]["groups"]
        rest = found[1:]
        share = {str(one["group"]): one["exact_match"] for one in found}
        answers = sum(one["answers"] for one in rest)
        if answers:
            share[others] = sum(one["exact_match"] * one["answers"] for one in rest) / answers
        return share

    others = "without the first"
    measured = {name: [shares(run) for run in runs] for name, runs in groups_of(options).items()}
    found = {column for runs in measured.values() for run in runs for column in run}
    columns = [*sorted(found - {others}, key=int), *(found & {others})]
    rows = []
    for name, runs in measured.items():
        means = [mean([run.get(column) for run in runs]) for column in columns]
        rows.append([name, str(len(runs)), *("" if share is None else f"{100 * share:.0f} %" for share in means)])
    table(["model", "seeds", *columns], rows)


def forces(options: argparse.Namespace) -> None:
    def loss(run: str, force: str | None) -> float | None:
        arguments = ["eval", options.out / run, "--val-data", options.val_data, "--val-tokens", options.tokens]
        try:
            return call(options, *arguments, *(["--force", force] if force else []))["models"][0]["loss"]
        except Failure as failure:
            if any(text in str(failure) for text in ("the model has none", " has the rule ", ", whose residual rule is ")):
                return None  # it has no such layers
            raise

    specs = options.forces.split()
    rows = []
    for name, runs in groups_of(options).items():
        cells = [number(mean([loss(run, spec) for run in runs]), 2) for spec in [None, *specs]]
        if any(cells[1:]):
            rows.append([name, *cells])
    table(["model", "as trained", *(f"`{spec}`" for spec in specs)], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {"losses": losses, "rates": rates, "stream": stream, "gates": gates, "mixing": mixing, "groups": groups,
              "forces": forces}
    parser.add_argument("table", choices=tables)
    parser.add_argument("out", metavar="OUT", type=Path, help="folder of the sweep")
    parser.add_argument("--program", default="ddl", help="the program (default: ddl)")
    parser.add_argument("--baseline", default="baseline", help="losses: the model that others are compared with")
    parser.add_argument("--pairs", default="", help="losses: further comparisons, A:B,...")
    parser.add_argument("--val-data", default="", help="validation shards")
    parser.add_argument("--tokens", type=int, default=16384, help="validation tokens that are read (default: 16384)")
    parser.add_argument("--forces", default="beta=mean beta=1 update=write update=erase mix=identity values=own "
                        "average=none", help="forces: specs of ddl eval --force, with spaces between them")
    options = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")
    if options.table in ("gates", "mixing", "forces") and not options.val_data:
        parser.error(f"{options.table} needs --val-data")
    try:
        tables[options.table](options)
    except Failure as failure:
        print(f"study_tables: {failure}", file=sys.stderr)
        return 1
    except (OSError, ValueError, KeyError) as error:  # a damaged file
        print(f"study_tables: {options.out}: cannot be read: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
