#!/usr/bin/env python3
"""How fast `ddl train` is with many hosts: measured, and predicted by a model of latency and rate.

    python3 scaling_model.py traffic [--program ddl]     the bytes that a rank sends in a step of the paper's runs
    python3 scaling_model.py predict [--program ddl]     the efficiency of these runs on 8, 64 and 512 hosts
    python3 scaling_model.py report DIR [--program ddl]  tables of what bench/scaling.sh measured, beside the model

All print tables in Markdown; docs/scaling.md has those of `traffic` and `report`. Needs nothing but Python 3.9 and the
program, whose `train --dry-run` counts parameters, operations and bytes.

The model. A step of R ranks consists of

    compute     largest share of the sequences / tokens per second of a host
    exchange    latency * messages + bytes / rate, for each of
                  the sum of the gradients (reduce-scatter)      B (R - 1) messages, a share of the bytes
                  the updated parameters (all-gather)            B (R - 1) messages, a share of the bytes
                  small sums (targets, loss, norm, agreement)    SMALL_SUMS (R - 1) messages

for B buckets. With overlap the gradients of the layers are exchanged during the backward pass of the last
micro-batch, except for one bucket; those of the embedding, which is also the head, and the parameters are not.
The efficiency of H hosts is the time of one host, without exchange, divided by H times the time of a step.
"""
from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

FLOAT = 4
ALIGN = 64  # bytes; pieces of a bucket are multiples of it
BUCKET = 4 << 20  # default of comm_bucket
SMALL_SUMS = 4
BACKWARD = 2 / 3  # share of the backward pass in the compute time

# docs/performance.md, "A training step against PyTorch", Intel: small, baseline, bf16, two cores, batch 1 x 1024.
MEASURED_TOKENS_PER_S = 795
MEASURED_CORES = 2


@dataclasses.dataclass(frozen=True)
class Run:
    """A run on some ranks, as `ddl train --dry-run` counts it."""

    parameters: int
    embedding: int
    flops_per_token: float
    bytes_sent: int  # by a rank, in a step
    ranks: int
    batch: int  # sequences of a micro-batch
    global_batch: int
    seq: int
    bucket: int  # bytes
    bf16: bool  # format of gradients in messages

    @property
    def share(self) -> int:
        """Sequences of the rank that has most."""
        return -(-self.global_batch // self.ranks)

    @property
    def last_micro_batch(self) -> int:
        return self.share % self.batch or min(self.share, self.batch)

    @property
    def buckets(self) -> int:
        floats = max(self.bucket // ALIGN, self.ranks) * (ALIGN // FLOAT)
        return -(-self.parameters // floats)

    @property
    def messages(self) -> int:
        """Sent by a rank in a step."""
        return (2 * self.buckets + SMALL_SUMS) * (self.ranks - 1)


@functools.lru_cache(maxsize=None)
def dry_run(program: str, size: str, ranks: int, batch: int, global_batch: int, seq: int, vocab: int, bucket: int,
            bf16: bool) -> Run:
    options = {"model": "baseline", "size": size, "vocab-size": vocab, "ranks": ranks, "batch": batch,
               "global-batch": global_batch, "seq": seq, "comm-bucket": bucket, "comm-dtype": "bf16" if bf16 else "f32"}
    command = [program, "train", "--dry-run", "--json", "--quiet", "--steps", "100000"]
    for name, value in options.items():
        command += ["--" + name, str(value)]
    environment = {**os.environ, "DDL_COMM": "none"}
    plan = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout)
    return Run(plan["parameters"]["total"], plan["parameters"]["embedding"], plan["flops_per_token"],
               int(plan["bytes_sent"]), ranks, batch, global_batch, seq, bucket, bf16)


@dataclasses.dataclass(frozen=True)
class Network:
    """Seconds of an exchange = latency * messages + bytes / rate."""

    latency: float  # seconds per message
    rate: float  # bytes per second that a host sends, and receives at the same time

    def seconds(self, messages: float, sent: float) -> float:
        return self.latency * messages + sent / self.rate


@dataclasses.dataclass(frozen=True)
class Step:
    compute: float
    exchange: float  # all of it
    exposed: float  # what does not run at the same time as the computation

    @property
    def seconds(self) -> float:
        return self.compute + self.exposed


def predict_step(run: Run, network: Network, tokens_per_s: float, overlap: bool = True, grid: bool = False) -> Step:
    """tokens_per_s: of one host without exchange. grid: ranks exchange in two stages, by rows and columns of a square
    (not implemented in ddl): as many bytes in fewer messages."""
    compute = run.share * run.seq / tokens_per_s
    if run.ranks == 1:
        return Step(compute, 0.0, 0.0)
    peers = 2 * (math.ceil(math.sqrt(run.ranks)) - 1) if grid else run.ranks - 1
    gradient_share = 1 / 3 if run.bf16 else 1 / 2  # parameters are always sent in float32
    gradients = network.seconds(run.buckets * peers, run.bytes_sent * gradient_share)
    parameters = network.seconds(run.buckets * peers, run.bytes_sent * (1 - gradient_share))
    small = network.seconds(SMALL_SUMS * (run.ranks - 1), 0)
    exchange = gradients + parameters + small
    if not overlap:
        return Step(compute, exchange, exchange)
    layers = gradients * (1 - run.embedding / run.parameters)
    backward = BACKWARD * run.last_micro_batch * run.seq / tokens_per_s
    hidden = min(backward, layers - min(layers, gradients / run.buckets))
    return Step(compute, exchange, exchange - hidden)


def efficiency(run: Run, step: Step, tokens_per_s: float, hosts: int) -> float:
    return run.global_batch * run.seq / tokens_per_s / (hosts * step.seconds)


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(line) + " |" for line in (header, *rows)]
    lines.insert(1, "|---" * len(header) + "|")
    return "\n".join(lines)


# ---- prediction ---------------------------------------------------------------------------------------------------

# Rows of recipes/paper-small.yaml and paper-medium.yaml: size, batch.
PAPER = {"small": 8, "medium": 4}
PAPER_GLOBAL_BATCH = 480
HOSTS = (8, 64, 512)


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    bf16: bool = False
    bucket: int = BUCKET
    batches: int = 1  # times the paper's global batch
    grid: bool = False


VARIANTS = (
    Variant("as is"),
    Variant("bf16", bf16=True),
    Variant("buckets", bucket=64 << 20),
    Variant("batch", batches=4),
    Variant("bf16, buckets, batch", bf16=True, bucket=64 << 20, batches=4),
    Variant("grid", grid=True),
)


def paper_run(arguments: argparse.Namespace, size: str, hosts: int, variant: Variant) -> Run:
    """A rank per host; hosts without a sequence are idle."""
    sequences = PAPER_GLOBAL_BATCH * variant.batches
    return dry_run(arguments.program, size, min(hosts, sequences), PAPER[size], sequences, 1024, 50304,
                   variant.bucket, variant.bf16)


def traffic(arguments: argparse.Namespace) -> None:
    ranks = (2, 4, *HOSTS)
    rows = []
    for size in PAPER:
        runs = [dry_run(arguments.program, size, n, PAPER[size], max(n, PAPER_GLOBAL_BATCH), 1024, 50304, BUCKET, False)
                for n in ranks]
        rows.append([size, f"{runs[0].parameters:,}", *(f"{run.bytes_sent / 2**20:.1f}" for run in runs)])
    print(table(["sent by a rank in a step, MiB", "parameters", *(f"{n} ranks" for n in ranks)], rows))


def host_rate(arguments: argparse.Namespace, run: Run, cores: int) -> float:
    """Tokens per second: the operations per second per core are those measured at size small."""
    small = dry_run(arguments.program, "small", 1, 1, 1, 1024, 50304, BUCKET, False)
    per_core = arguments.tokens_per_s * small.flops_per_token / MEASURED_CORES
    return cores * per_core / run.flops_per_token


def predict(arguments: argparse.Namespace) -> None:
    rows = []
    for size in PAPER:
        for cores in arguments.cores:
            for hosts in HOSTS:
                for gbit in arguments.gbit:
                    network = Network(arguments.latency_us * 1e-6, arguments.rate_share * gbit * 1e9 / 8)
                    first = paper_run(arguments, size, hosts, VARIANTS[0])
                    rate = host_rate(arguments, first, cores)
                    step = predict_step(first, network, rate)
                    row = [size, str(cores), str(hosts), f"{gbit:g}", f"{first.bytes_sent / 2**20:.1f}",
                           f"{first.messages}", f"{step.compute:.2f}", f"{step.exposed:.2f} of {step.exchange:.2f}"]
                    for variant in VARIANTS:
                        run = paper_run(arguments, size, hosts, variant)
                        predicted = predict_step(run, network, rate, grid=variant.grid)
                        value = efficiency(run, predicted, rate, hosts)
                        row.append(f"**{value:.2f}**" if round(value, 2) >= 0.8 else f"{value:.2f}")
                    rows.append(row)
    header = ["size", "cores", "hosts", "Gbit/s", "MiB sent", "messages", "compute s", "exchange s, not hidden"]
    print(table(header + [variant.name for variant in VARIANTS], rows))


# ---- what bench/scaling.sh measured -----------------------------------------------------------------------------


def step_seconds(metrics: Path) -> list[float]:
    """Of every step after the first."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    totals = [line["train_seconds"] for line in lines if line.get("kind") is None and line["step"] > 0]
    return [b - a for a, b in zip(totals, totals[1:])]


def runs_of(folder: Path) -> dict[tuple[int, str, str], list[list[float]]]:
    """(ranks, Gbit/s, "on" or "off") -> the seconds of steps in each round. Folders: RANKS-GBIT-OVERLAP-ROUND."""
    found: dict[tuple[int, str, str], list[list[float]]] = {}
    for run in sorted(folder.glob("*/metrics.jsonl")):
        match = re.fullmatch(r"(\d+)-([\d.]+|none)-(on|off)-\d+", run.parent.name)
        if match:
            found.setdefault((int(match[1]), match[2], match[3]), []).append(step_seconds(run))
    return found


EXCHANGES = ("reduce_scatter", "all_gather")


def row_of(rows: list[dict], name: str) -> dict:
    return next(row for row in rows if row["name"] == name)


def fit(rows: list[dict], name: str, messages: int) -> Network:
    """The latency from the exchange of 1 KiB, then the rate from that of 4 MiB, a bucket. A token bucket lets arrays
    between these sizes pass at once, so that no line fits all of them."""
    small, large = row_of(rows, f"{name} 1 KiB"), row_of(rows, f"{name} 4 MiB")
    latency = small["median"] / messages
    return Network(latency, large["bytes"] / max(large["median"] - latency * messages, 1e-9))


def report(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.folder)
    settings = json.loads((folder / "settings.json").read_text())
    runs = runs_of(folder)
    tokens = settings["global_batch"] * settings["seq"]

    def plan(ranks: int) -> Run:
        return dry_run(arguments.program, settings["size"], ranks, settings["batch"], settings["global_batch"],
                       settings["seq"], settings["vocab_size"], BUCKET, False)

    def median(key: tuple[int, str, str]) -> float:
        return statistics.median(seconds for steps in runs[key] for seconds in steps)

    exchanges, networks = [], {}
    for path in sorted(folder.glob("comm-*.json")):
        ranks, gbit = re.fullmatch(r"comm-(\d+)-([\d.]+)", path.stem).groups()
        benchmark = json.loads(path.read_text())
        fits = [fit(benchmark["rows"], name, int(ranks) - 1) for name in EXCHANGES]
        networks[int(ranks), gbit] = Network(statistics.mean(f.latency for f in fits),
                                             statistics.harmonic_mean([f.rate for f in fits]))
        exchanges.append([ranks, gbit, f"{benchmark['figures']['sum_us']:.0f}"] +
                         [f"{1e3 * row_of(benchmark['rows'], f'{name} 4 MiB')['median']:.1f}" for name in EXCHANGES] +
                         [", ".join(f"{1e6 * f.latency:.0f}" for f in fits), ", ".join(f"{1e-6 * f.rate:.0f}" for f in fits)])

    single = tokens / median((1, "none", "off"))
    rows = []
    for ranks, gbit, overlap in sorted(runs, key=lambda key: (key[0], float(key[1].replace("none", "0")), key[2])):
        run = plan(ranks)
        seconds = median((ranks, gbit, overlap))
        rounds = ", ".join(f"{tokens / statistics.median(steps):.0f}" for steps in runs[ranks, gbit, overlap])
        host = single * min(1, settings["cores"] / ranks)
        network = networks.get((ranks, gbit), Network(0, math.inf))
        step = predict_step(run, network, host, overlap == "on")
        rows.append([str(ranks), gbit.replace("none", "-"), overlap if ranks > 1 else "-", rounds,
                     f"{run.bytes_sent / 2**20:.1f}", str(run.messages if ranks > 1 else 0), f"{seconds:.2f}",
                     f"{step.seconds:.2f}", f"{step.exchange:.2f}", f"{step.exposed:.2f}"])
    print(table(["ranks", "Gbit/s", "overlap", "tokens/s, each round", "MiB sent", "messages", "step s",
                 "model: step s", "exchange s", "not hidden s"], rows))
    print()
    print(table(["ranks", "Gbit/s", "sum of a number, µs", "reduce-scatter of 4 MiB, ms", "all-gather of 4 MiB, ms",
                 "latency per message, µs: reduce-scatter, all-gather",
                 "rate, MB/s: reduce-scatter, all-gather"], exchanges))


def main() -> None:
    parser = argparse.ArgumentParser(description="predicts the speed of ddl train on many hosts")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in (("traffic", "bytes that a rank of the paper's runs sends"),
                        ("predict", "the paper's runs on 8, 64 and 512 hosts"), ("report", "what was measured")):
        command = commands.add_parser(name, help=about)
        command.add_argument("--program", default="ddl", help="ddl (default: in PATH)")
    commands.choices["report"].add_argument("folder", help="folder that bench/scaling.sh wrote")
    options = commands.choices["predict"]
    options.add_argument("--latency-us", type=float, default=20, help="per message (default: 20)")
    options.add_argument("--rate-share", type=float, default=0.9, help="of the network's rate (default: 0.9)")
    options.add_argument("--gbit", type=float, nargs="+", default=[10, 100], help="networks (default: 10 100)")
    options.add_argument("--cores", type=int, nargs="+", default=[2, 64], help="of a host (default: 2 64)")
    options.add_argument("--tokens-per-s", type=float, default=MEASURED_TOKENS_PER_S,
                         help=f"of size small on two cores (default: {MEASURED_TOKENS_PER_S})")
    arguments = parser.parse_args()
    try:
        {"traffic": traffic, "predict": predict, "report": report}[arguments.command](arguments)
    except (OSError, ValueError, KeyError, subprocess.CalledProcessError) as error:
        sys.exit(f"scaling_model: {error}")


if __name__ == "__main__":
    main()
