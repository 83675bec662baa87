"""deep_delta.runs: metrics, telemetry, recipe and plots of a run."""
import json

import numpy as np
import pytest

import deep_delta as dd


def test_metrics_are_those_of_the_file(run):
    read = dd.runs.read(run)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "kind" not in row]
    assert read.metrics["step"].tolist() == [row["step"] for row in steps]
    assert read.metrics["loss"].tolist() == [row["loss"] for row in steps]
    assert np.isnan(read.metrics["lr"][0]) and read.metrics["lr"][1] == steps[1]["lr"]
    assert read.recipe["model"] == "ddl-1" and read.recipe["steps"] == 12 and read.recipe["lr"] == 0.001
    assert read.config["num_hidden_layers"] == 4


def test_telemetry(run):
    read = dd.runs.read(run)
    records = [row for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "kind" in row]
    assert read.telemetry_steps.tolist() == [row["step"] for row in records]
    assert read.sublayers == [(layer, sub) for layer in range(4) for sub in ("attn", "mlp")]
    gates = read.telemetry["beta_mean"]
    assert gates.shape == (len(records), 8) and gates[0, 3] == records[0]["sublayers"][3]["beta_mean"]
    assert read.histograms[0, 0].sum() == records[0]["sublayers"][0]["gate_values"]


def test_a_line_that_is_being_written_is_left_out(run, tmp_path):
    lines = (run / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(lines + '{"step":13,"lo')
    assert dd.runs.read(tmp_path).metrics["step"][-1] == 12


def test_frames(run):
    pytest.importorskip("pandas")
    read = dd.runs.read(run)
    assert read.frame().loc[12, "loss"] == read.metrics["loss"][-1]
    assert len(read.telemetry_frame()) == read.telemetry["beta_mean"].size


def test_plot(run, tmp_path):
    pytest.importorskip("matplotlib")
    chart = dd.runs.read(run).plot()
    chart.savefig(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10000
    assert len(chart.axes[0].lines) == 2 and len(chart.axes[1].lines) == 8


def test_plot_leaves_out_steps_without_targets(run, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "recipe.yaml").write_text((run / "recipe.yaml").read_text())
    (tmp_path / "metrics.jsonl").write_text('{"step":0,"loss":0}\n{"step":1,"loss":0,"skipped":true}\n{"step":2,"loss":4}\n')
    assert dd.runs.read(tmp_path).plot().axes[0].lines[0].get_ydata().tolist() == [4]
