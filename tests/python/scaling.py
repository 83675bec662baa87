"""Tests python/scaling_model.py: counts, the terms of the model, the tables of docs/scaling.md, and a report of runs
whose times follow from known latencies and rates."""

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE, SCRATCH = Path(os.environ["DDL_SOURCE_DIR"]), Path(os.environ["DDL_SCRATCH"])
PROGRAM = os.environ["DDL_PROGRAM"]
sys.path.insert(0, str(SOURCE / "python"))
sys.dont_write_bytecode = True
import scaling_model as m  # noqa: E402

SMALL = dict(size="small", batch=8, global_batch=480, seq=1024, vocab=50304, bucket=m.BUCKET, bf16=False)


def plan(ranks: int, **settings: object) -> m.Run:
    return m.dry_run(PROGRAM, ranks=ranks, **{**SMALL, **settings})


def near(found: float, expected: float) -> None:
    assert math.isclose(found, expected, rel_tol=1e-9), (found, expected)


def counts() -> None:
    """The bytes of the program's dry run are 2 (R - 1) / R x 4 bytes per parameter, 1.5 with bf16, but for cuts at
    multiples of 64 bytes."""
    for ranks in (2, 8, 64, 480):
        run = plan(ranks)
        assert 0 <= run.bytes_sent - 8 * run.parameters * (ranks - 1) / ranks <= 2 * 64 * run.buckets
        half = plan(ranks, bf16=True)
        assert 0 <= half.bytes_sent - 6 * run.parameters * (ranks - 1) / ranks <= 2 * 64 * run.buckets
        assert run.buckets == math.ceil(4 * run.parameters / m.BUCKET)
        assert run.messages == (2 * run.buckets + m.SMALL_SUMS) * (ranks - 1)
        assert run.share == math.ceil(480 / ranks)
    assert [plan(ranks).last_micro_batch for ranks in (8, 64, 480)] == [4, 8, 1]
    assert plan(480, bucket=64 << 20).buckets == 8
    assert plan(480, bucket=4096).buckets == math.ceil(plan(480).parameters / (480 * 16))  # a cache line per rank


def terms() -> None:
    network = m.Network(latency=1e-5, rate=1e9)
    run, speed = plan(8), 1000.0
    gradients = network.seconds(run.buckets * 7, run.bytes_sent / 2)
    small = network.seconds(m.SMALL_SUMS * 7, 0)
    without = m.predict_step(run, network, speed, overlap=False)
    near(without.compute, 60 * 1024 / speed)
    near(without.exchange, 2 * gradients + small)
    near(without.seconds, without.compute + without.exchange)
    # The backward pass of 4 sequences takes 2.7 s: all but the embedding, a bucket and the parameters is hidden.
    layers = gradients * (1 - run.embedding / run.parameters)
    step = m.predict_step(run, network, speed)
    near(step.exposed, without.exchange - layers + gradients / run.buckets)
    # A pass that is shorter hides as long as it takes.
    fast = m.predict_step(run, network, 1e6)
    near(fast.exposed, fast.exchange - 2 / 3 * 4 * 1024 / 1e6)
    # One rank exchanges nothing; a fast network reaches the efficiency of the shares.
    assert m.predict_step(plan(1), network, speed).seconds == 480 * 1024 / speed
    ideal = m.Network(0, math.inf)
    near(m.efficiency(plan(64), m.predict_step(plan(64), ideal, speed), speed, 64), 480 / (64 * 8))
    # A grid has fewer messages, bf16 fewer bytes.
    assert m.predict_step(plan(480), network, speed, grid=True).exchange < m.predict_step(plan(480), network, speed).exchange
    half = m.predict_step(plan(8, bf16=True), network, speed, overlap=False)
    near(half.exchange, without.exchange - run.bytes_sent / 4 / network.rate)


def run(*arguments: str) -> str:
    command = [sys.executable, str(SOURCE / "python/scaling_model.py"), *arguments, "--program", PROGRAM]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def document() -> None:
    """docs/scaling.md has the table of bytes that the program prints; the prediction has a row for each case."""
    lines = (SOURCE / "docs/scaling.md").read_text().splitlines()
    for line in run("traffic").splitlines():
        assert line in lines, f"docs/scaling.md: not in the document: {line}"
    rows = [line for line in run("predict").splitlines() if line.startswith(("| small", "| medium"))]
    assert len(rows) == 24, rows


def write_runs(folder: Path, single: float, networks: dict[tuple[int, str], m.Network]) -> m.Run:
    """Runs of three steps in two rounds, the first step of a run longer; returns the plan of two ranks."""
    shutil.rmtree(folder, ignore_errors=True)
    settings = {"size": "micro", "vocab_size": 8192, "seq": 128, "batch": 2, "global_batch": 4, "cores": 2}
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps(settings))
    two = m.dry_run(PROGRAM, "micro", 2, 2, 4, 128, 8192, m.BUCKET, False)

    def write(name: str, seconds: float) -> None:
        for number in (1, 2):
            run = folder / f"{name}-{number}"
            run.mkdir()
            totals = [0, 9, 9 + seconds, 9 + 2 * seconds]
            lines = [json.dumps({"step": i, "train_seconds": t}) for i, t in enumerate(totals)]
            lines.insert(2, json.dumps({"step": 1, "kind": "telemetry"}))
            (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")

    write("1-none-off", single)
    for (ranks, gbit), network in networks.items():
        run = dataclasses.replace(two, ranks=ranks)
        for overlap in ("on", "off"):
            write(f"{ranks}-{gbit}-{overlap}", m.predict_step(run, network, 512 / single, overlap == "on").seconds)
        rows = []
        for name in m.EXCHANGES:
            rows += [{"name": f"{name} 1 KiB", "bytes": 512, "median": network.latency * (ranks - 1)},
                     {"name": f"{name} 4 MiB", "bytes": 2**21, "median": network.seconds(ranks - 1, 2**21)}]
        (folder / f"comm-{ranks}-{gbit}.json").write_text(json.dumps({"figures": {"sum_us": 10.0}, "rows": rows}))
    return two


def report() -> None:
    folder = SCRATCH / "measured"
    two = write_runs(folder, 2.0, {(2, "1"): m.Network(1e-4, 1e7), (2, "10"): m.Network(1e-4, 1e8)})
    rows = [line.strip("| ").split(" | ") for line in run("report", str(folder)).splitlines() if line[:3] not in ("|--", "")]
    assert len(rows) == 1 + 5 + 1 + 2, rows
    assert rows[1][:4] == ["1", "-", "-", "256, 256"] and rows[1][6:] == ["2.00", "2.00", "0.00", "0.00"]
    for row in rows[2:6]:
        assert row[4:6] == [f"{two.bytes_sent / 2**20:.1f}", str(two.messages)], row
        assert row[6] == row[7], row  # measured as predicted
    assert [row[1:3] for row in rows[2:6]] == [["1", "off"], ["1", "on"], ["10", "off"], ["10", "on"]]
    assert rows[7][:2] == ["2", "1"] and rows[7][5:] == ["100, 100", "10, 10"], rows[7]


def errors() -> None:
    command = [sys.executable, str(SOURCE / "python/scaling_model.py"), "report", str(SCRATCH / "none")]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.startswith("scaling_model: ") and done.stderr.count("\n") == 1, done.stderr


def main() -> int:
    failed = 0
    for test in (counts, terms, document, report, errors):
        try:
            test()
            print(f"[       OK ] {test.__name__}")
        except AssertionError as error:
            print(f"{error}\n[  FAILED  ] {test.__name__}")
            failed += 1
    if failed:
        print(f"{failed} FAILED TEST(S)")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
