"""Tests python/study_tables.py on a small sweep: each table against the records of the runs, and the messages."""

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

SOURCE, SCRATCH = Path(os.environ["DDL_SOURCE_DIR"]), Path(os.environ["DDL_SCRATCH"])
PROGRAM = os.environ["DDL_PROGRAM"]
MODELS = ["baseline", "gated", "mhc", "laurel", "denseformer", "resformer", "attnres", "ddl-2step"]
SWEEP = """
base: {size: micro, hidden_size: 32, seq: 16, batch: 2, steps: 8, threads: 1, train_data: shards, val_tokens: 64,
       val_every: 4, telemetry_every: 4}
out: runs
models: [%s]
seeds: [0, 1]
choose: {key: lr, values: [1e-3, 3e-3], steps: 4}
"""


def ddl(*arguments: object) -> None:
    subprocess.run([PROGRAM, *map(str, arguments), "--quiet"], cwd=SCRATCH, check=True, stdout=subprocess.DEVNULL)


def script(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SOURCE / "python/study_tables.py"), *map(str, arguments), "--program", PROGRAM]
    return subprocess.run(command, cwd=SCRATCH, capture_output=True, text=True, encoding="utf-8")


def tables(*arguments: object) -> list[list[list[str]]]:
    """The tables that the script prints: rows of cells, the first row being the head."""
    done = script(*arguments)
    assert done.returncode == 0, done.stderr
    found = []
    for block in done.stdout.strip().split("\n\n"):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        assert set("".join(rows[1])) == {"-"} and len({len(row) for row in rows}) == 1, block
        found.append([rows[0], *rows[2:]])
    return found


def value(cell: str) -> float:
    return float(cell.split(" (")[0].strip("*").replace("\u2212", "-"))


def records(run: str) -> list[dict]:
    return [json.loads(line) for line in (SCRATCH / "runs" / run / "metrics.jsonl").read_text().splitlines()]


def final_losses(model: str) -> list[float]:
    return [[r["val_loss"] for r in records(f"{model}_seed={seed}") if "val_loss" in r][-1] for seed in (0, 1)]


def losses() -> None:
    groups, pairs = tables("losses", "runs", "--pairs", "mhc:laurel,gated:baseline")
    assert [row[0] for row in groups[1:]] == MODELS
    for row in groups[1:]:
        found = final_losses(row[0])
        assert abs(value(row[1]) - statistics.mean(found)) < 1e-4, row
        assert abs(value(row[2]) - statistics.stdev(found)) < 1e-4, row
        assert row[0] == "baseline" or abs(
            value(row[4]) - statistics.mean(found) + statistics.mean(final_losses("baseline"))) < 1e-4, row
    assert [row[:2] for row in pairs[1:]] == [["mhc", "laurel"], ["gated", "baseline"]]
    assert pairs[2][2:] == groups[2][4:7]
    difference = statistics.mean(final_losses("mhc")) - statistics.mean(final_losses("laurel"))
    assert abs(value(pairs[1][2]) - difference) < 1e-4


def rates() -> None:
    (found,) = tables("rates", "runs")
    assert found[0] == ["model", "1e-3", "3e-3"] and [row[0] for row in found[1:]] == MODELS
    choices = json.loads((SCRATCH / "runs/sweep.json").read_text())["choices"]
    for row, choice in zip(found[1:], choices):
        best = min(choice["values"], key=lambda tried: tried["loss"])["value"]
        assert [name for name, cell in zip(found[0], row) if cell.startswith("**")] == [best], row
        assert all(abs(value(cell) - tried["loss"]) < 1e-3 for cell, tried in zip(row[1:], choice["values"])), row


def stream() -> None:
    (found,) = tables("stream", "runs")
    assert found[0][1:4] == ["stream, step 1", "stream, step 4", "stream, step 8"]
    assert [row[0] for row in found[1:]] == MODELS
    last = [[r["sublayers"] for r in records(f"gated_seed={seed}") if r.get("kind") == "telemetry"][-1]
            for seed in (0, 1)]
    expected = [statistics.mean(run[-1]["x_rms"] for run in last),
                statistics.mean(max(s["f_rms"] for s in run) for run in last),
                statistics.mean(statistics.mean(s["step"] for s in run) for run in last)]
    for cell, figure in zip((found[2][3], found[2][4], found[2][6]), expected):
        assert abs(value(cell) - figure) < 0.05 * figure, (cell, figure)


def trained() -> None:
    options = ("runs", "--val-data", "shards", "--tokens", 64)
    by_sublayer, overall = tables("gates", *options)
    assert [row[0] for row in by_sublayer[1:]] == ["gated", "ddl-2step, step 1", "ddl-2step, step 2"]
    assert len(by_sublayer[0]) == 9 and all(0 < value(cell) < 2 for row in by_sublayer[1:] for cell in row[1:])
    assert [row[0] for row in overall[1:]] == MODELS and value(overall[-1][9]) <= 1
    mixing, sums = tables("mixing", *options)
    figures = {(row[0], row[1]): value(row[2]) for row in mixing[1:]}
    assert figures["mhc", "row sum of the product"] == 1 and 0.9 < figures["mhc", "diagonal of M"] < 1
    assert abs(figures["laurel", "m₀ of f"] + figures["laurel", "m₁ of x"] - 2) < 0.011
    assert {row[0] for row in mixing[1:]} == {"mhc", "laurel", "resformer"}
    assert [(row[0], len(row[2].split(", "))) for row in sums[1:]] == [("denseformer", n) for n in (2, 3, 4, 5)]
    (forced,) = tables("forces", *options, "--forces", "mix=identity values=own beta=mean")
    empty = {row[0]: [not cell for cell in row[2:]] for row in forced[1:]}
    assert empty == {"mhc": [False, True, True], "laurel": [False, True, True], "resformer": [True, False, True],
                     "ddl-2step": [True, True, False]}, empty


def groups() -> None:
    """Accuracies of two groups with 30 and 10 answers, and of a third."""
    for number, name in enumerate(MODELS):
        for seed in (0, 1):
            found = [{"group": 1, "exact_match": 0.5, "answers": 7},
                     {"group": 2, "exact_match": 0.1 * number, "answers": 30},
                     {"group": 4, "exact_match": 0.2 * seed, "answers": 10}]
            if seed == 1 and name == "mhc":
                del found[2]  # a task whose last group no validation sequence has
            text = json.dumps({"models": [{"loss": 1, "groups": found}]})
            (SCRATCH / f"runs/{name}_seed={seed}/groups.json").write_text(text, encoding="utf-8")
    (found,) = tables("groups", "runs")
    assert found[0] == ["model", "seeds", "1", "2", "4", "without the first"] and [row[0] for row in found[1:]] == MODELS
    for number, row in enumerate(found[1:]):
        if row[0] == "mhc":
            assert row[1:5] == ["2", "50 %", f"{10 * number} %", "0 %"], row
            continue
        assert row[1:5] == ["2", "50 %", f"{10 * number} %", "10 %"], row
        assert row[5] == f"{100 * (3 * number + 1) / 40:.0f} %", row


def mistakes() -> None:
    shutil.copytree(SCRATCH / "runs", SCRATCH / "without", ignore=shutil.ignore_patterns("groups.json"))
    for arguments, message in (
            (("losses", "nowhere"), "nowhere/sweep.json: cannot be read"),
            (("losses", "runs", "--baseline", "other"), "--baseline: other: expected one of baseline, gated"),
            (("losses", "runs", "--pairs", "other:baseline"), "--pairs: other: expected one of"),
            (("losses", "runs", "--pairs", "gated"), "--pairs: no name: expected one of"),
            (("groups", "without"), "without: cannot be read: FileNotFoundError"),
            (("gates", "runs", "--val-data", "nowhere"), "nowhere: cannot open"),
            (("forces", "runs", "--val-data", "shards", "--forces", "beta=x"), "--force 'beta=x'")):
        done = script(*arguments)
        assert done.returncode == 1 and message in done.stderr, (arguments, done.stderr)
        assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert script("gates", "runs").returncode == 2
    (SCRATCH / "damaged").mkdir()
    (SCRATCH / "damaged/sweep.json").write_text("{}")
    done = script("rates", "damaged")
    assert done.returncode == 1 and "study_tables: damaged: cannot be read: KeyError" in done.stderr, done.stderr


def main() -> None:
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    text = SCRATCH / "text.txt"
    text.write_text((SOURCE / "LICENSE").read_text(encoding="utf-8")[:30000], encoding="utf-8")
    (SCRATCH / "sweep.yaml").write_text(SWEEP % ", ".join(MODELS), encoding="utf-8")
    ddl("tokenizer", "train", text, "--vocab-size", 512, "--out", "shards/tokenizer.json")
    ddl("data", "build", text, "--tokenizer", "shards/tokenizer.json", "--val-fraction", 0.1, "--out", "shards")
    ddl("sweep", "sweep.yaml", "--jobs", 2)
    for test in (losses, rates, stream, trained, groups, mistakes):
        test()
        print(f"{test.__name__} passed")


if __name__ == "__main__":
    main()
