"""Tests that TensorBoard reads the event files of `ddl train --tensorboard` with the values of metrics.jsonl.

Run by tensorboard.sh with DDL_SOURCE_DIR, DDL_PROGRAM and DDL_SCRATCH; prints results in cmocka's format. The run is
stopped and resumed with steps that are repeated, so it has two event files.
"""
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tensorboard.backend.event_processing import event_accumulator, event_file_loader, plugin_event_accumulator

SOURCE, PROGRAM, SCRATCH = Path(os.environ["DDL_SOURCE_DIR"]), os.environ["DDL_PROGRAM"], Path(os.environ["DDL_SCRATCH"])
RUN = SCRATCH / "run"


def ddl(*arguments, status=0):
    done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=SCRATCH, capture_output=True, text=True, errors="replace", timeout=300)
    if done.returncode != status:
        raise AssertionError(f"ddl {' '.join(map(str, arguments))}: {done.stderr}")
    return done


def train(*more):
    return ddl(
        "train", "--model", "ddl-cc-ec", "--size", "micro", "--num-hidden-layers", 2, "--hidden-size", 32, "--head-dim", 16,
        "--num-attention-heads", 2, "--block-size", 32, "--batch", 2, "--warmup", 0, "--train-data", "shards", "--tokenizer",
        "tok", "--out", "run", "--steps", 12, "--val-every", 4, "--val-tokens", 64, "--checkpoint-every", 4, "--keep-last", 0,
        "--telemetry-every", 3, "--sample-every", 4, "--sample-prompt", "The", "--sample-tokens", 10, "--tensorboard", *more)


def skip_without_protobuf():
    done = subprocess.run([PROGRAM, "train", "--tensorboard", "--dry-run"], capture_output=True, text=True, timeout=60)
    if "without protobuf-c" in done.stderr:
        print("skipped: this ddl was built without protobuf-c")
        sys.exit(77)


def prepare():
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    (SCRATCH / "text.txt").write_bytes((SOURCE / "LICENSE").read_bytes() * 4)
    ddl("tokenizer", "train", "--quiet", "--vocab-size", 300, "--out", "tok", "text.txt")
    ddl("data", "build", "--quiet", "--tokenizer", "tok", "--val-fraction", 0.2, "--out", "shards", "text.txt")
    train()
    # As if killed in the last steps: they are repeated.
    shutil.rmtree(RUN / "checkpoint-12")
    (RUN / "model.safetensors").unlink()
    train("--resume")


def lines():
    records = [json.loads(line) for line in (RUN / "metrics.jsonl").read_text().splitlines()]
    return [r for r in records if "kind" not in r], [r for r in records if r.get("kind") == "telemetry"]


def load():
    events = event_accumulator.EventAccumulator(
        str(RUN / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    events.Reload()
    return events


def expect(found, expected, what):
    if [step for step, _ in found] != [step for step, _ in expected]:
        raise AssertionError(f"{what}: steps {[s for s, _ in found]}, expected {[s for s, _ in expected]}")
    for (step, a), (_, b) in zip(found, expected):
        if not math.isclose(a, b, rel_tol=6e-6, abs_tol=1e-12):
            raise AssertionError(f"{what}: step {step}: {a}, expected {b}")


def scalars(events, tag):
    return [(e.step, e.value) for e in events.Scalars(tag)]


def reads_scalars():
    events, (steps, records) = load(), lines()
    for key in ("loss", "val_loss", "lr", "grad_norm", "tokens_per_s"):
        expect(scalars(events, f"train/{key}"), [(r["step"], r[key]) for r in steps if key in r], key)
    for s, sublayer in enumerate(records[0]["sublayers"]):
        place = f"layer.{sublayer['layer']}.{sublayer['sub']}"
        keys = [k for k, v in sublayer.items() if isinstance(v, (int, float)) and k != "layer" and not k.startswith("gate_")]
        assert "beta_mean" in keys and "e_pre_rms" in keys and "x_rms" in keys
        for key in keys:
            expect(scalars(events, f"{key}/{place}"), [(r["step"], r["sublayers"][s][key]) for r in records], key)
    for layer in range(2):
        expected = [(r["step"], r["grad_norms"]["layers"][layer]) for r in records]
        expect(scalars(events, f"grad_norms/layer.{layer}"), expected, "gradient norm")


def reads_histograms():
    events, (_, records) = load(), lines()
    for s, sublayer in enumerate(records[0]["sublayers"]):
        found = events.Histograms(f"gate/layer.{sublayer['layer']}.{sublayer['sub']}")
        assert [h.step for h in found] == [r["step"] for r in records]
        for h, record in zip(found, records):
            value, expected = h.histogram_value, record["sublayers"][s]
            bins = expected["histogram"]
            first = next(i for i, n in enumerate(bins) if n)
            assert value.bucket == [n for n in bins[first:first + len(value.bucket)]] and sum(value.bucket) == sum(bins)
            assert math.isclose(value.bucket_limit[0], expected["gate_max"] * (first + 1) / 40)
            assert value.num == expected["gate_values"] and math.isclose(value.min, expected["beta_min"], rel_tol=6e-6)


def reads_text():
    # Of the two readers the one of TensorBoard's backend: the other does not remove repeated tensors.
    events = plugin_event_accumulator.EventAccumulator(str(RUN / "tensorboard"))
    events.Reload()
    found = events.Tensors("sample")
    assert [t.step for t in found] == [4, 8, 12], [t.step for t in found]
    for t in found:
        assert t.tensor_proto.string_val[0].decode().startswith("The")


def files_are_whole():
    files = sorted((RUN / "tensorboard").iterdir())
    assert len(files) == 2, files
    for path in files:
        loaded = list(event_file_loader.EventFileLoader(str(path)).Load())
        assert loaded[0].file_version == "brain.Event:2"
        assert loaded[1].session_log.status == 1
    assert loaded[1].step == 9


TESTS = [prepare, reads_scalars, reads_histograms, reads_text, files_are_whole]


def main():
    failed = 0
    skip_without_protobuf()
    print(f"[==========] Running {len(TESTS)} test(s).")
    for test in TESTS:
        print(f"[ RUN      ] {test.__name__}", flush=True)
        try:
            test()
            print(f"[       OK ] {test.__name__}", flush=True)
        except AssertionError as why:
            failed += 1
            print(f"[  FAILED  ] {test.__name__}: {why}", flush=True)
    return failed != 0


sys.exit(main())
