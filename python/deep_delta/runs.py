"""What a run has written: its configuration, metrics and telemetry as numpy arrays, and plots of them."""
from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas

Array = NDArray[np.float64]


@dataclass
class Run:
    """A run folder as it was when it was read.

    metrics: one array (logged steps) of float64 per key of metrics.jsonl (docs/formats.md), NaN where a line lacks the
    key; "step" is among them. telemetry: steps (records), sublayers [(layer, sub)], and one array (records, sublayers)
    per figure; histograms (records, sublayers, bins), None without gates.
    """

    folder: Path
    recipe: dict[str, Any]
    config: dict[str, Any]
    metrics: dict[str, Array]
    telemetry_steps: Array
    sublayers: list[tuple[int, str]]
    telemetry: dict[str, Array]
    histograms: Array | None

    def frame(self) -> pandas.DataFrame:
        """Metrics as a pandas DataFrame with the steps as its index."""
        import pandas

        return pandas.DataFrame(self.metrics).set_index("step")

    def telemetry_frame(self) -> pandas.DataFrame:
        """Telemetry as a pandas DataFrame in long form: step, layer, sub and a column per figure."""
        import pandas

        rows = [{"step": step, "layer": layer, "sub": sub, **{name: values[i, s] for name, values in self.telemetry.items()}}
                for i, step in enumerate(self.telemetry_steps) for s, (layer, sub) in enumerate(self.sublayers)]
        return pandas.DataFrame(rows)

    def plot(self, figure: str = "beta_mean") -> Any:
        """The loss curves and a figure of every sublayer over the steps, as a matplotlib Figure."""
        from matplotlib.figure import Figure

        chart = Figure(figsize=(10, 4), layout="constrained")
        loss, gates = chart.subplots(1, 2)
        for key, label in (("loss", "training"), ("val_loss", "validation")):
            values = self.metrics.get(key)
            if values is not None:
                known = ~np.isnan(values)
                if key == "loss":  # no target was counted: step 1, whose loss is also that of step 0, or a skipped one
                    skipped = self.metrics.get("skipped", np.zeros_like(values)) == 1
                    known &= ~((values == 0) & (skipped | (self.metrics["step"] == 0)))
                loss.plot(self.metrics["step"][known], values[known], label=label)
        loss.set(xlabel="step", ylabel="loss (nats)")
        loss.legend()
        for s, (layer, sub) in enumerate(self.sublayers if figure in self.telemetry else []):
            gates.plot(self.telemetry_steps, self.telemetry[figure][:, s], label=f"{layer} {sub}")
        gates.set(xlabel="step", ylabel=figure)
        if 0 < len(self.sublayers) <= 16:
            gates.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))  # beside the curves
        return chart


def read(folder: str | os.PathLike[str]) -> Run:
    """Reads a run folder, also while the run is training; a line that is still being written is left out."""
    path = Path(folder)
    steps: list[dict[str, Any]] = []
    records: list[dict[str, Any]] = []
    with (path / "metrics.jsonl").open() as file:
        for line in file:
            if line.endswith("\n"):
                row = json.loads(line)
                (records if row.get("kind") == "telemetry" else steps).append(row)
    config = path / "config.json"
    return Run(folder=path, recipe=read_recipe(path / "recipe.yaml"),
               config=json.loads(config.read_text()) if config.is_file() else {},
               metrics=columns([flat(row) for row in steps]), **telemetry(records))


def flat(row: dict[str, Any]) -> dict[str, float]:
    """A line's numbers; those of nested objects under dotted names, as in "tasks.arc_easy.acc"."""
    out: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            out.update({f"{key}.{inner}": number for inner, number in flat(value).items()})
        elif isinstance(value, (int, float)):
            out[key] = float(value)
    return out


def columns(rows: list[dict[str, float]]) -> dict[str, Array]:
    """One array a key, NaN where a row lacks it."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: np.array([row.get(key, np.nan) for row in rows]) for key in keys}


def telemetry(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The members of Run that telemetry records fill."""
    sublayers = [(row["layer"], row["sub"]) for row in records[0]["sublayers"]] if records else []
    keys = dict.fromkeys(key for record in records for row in record["sublayers"] for key, value in row.items()
                         if isinstance(value, (int, float)) and key != "layer")
    figures = {key: np.array([[row.get(key, np.nan) for row in record["sublayers"]] for record in records], np.float64)
               for key in keys}
    bins = max((len(row.get("histogram", ())) for record in records for row in record["sublayers"]), default=0)
    histograms = np.array([[row.get("histogram", [np.nan] * bins) for row in record["sublayers"]] for record in records],
                          np.float64) if bins else None
    return {"telemetry_steps": np.array([record["step"] for record in records], np.float64), "sublayers": sublayers,
            "telemetry": figures, "histograms": histograms}


def read_recipe(path: Path) -> dict[str, Any]:
    """The keys of recipe.yaml, a flat mapping as ddl writes it: numbers, booleans and texts."""
    out: dict[str, Any] = {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        key, colon, value = line.partition(":")
        if not colon or line.startswith(("#", " ")):
            continue
        value = value.strip()
        try:
            out[key] = json.loads(value)
        except ValueError:
            quoted = len(value) > 1 and value[0] == value[-1] == "'"
            out[key] = value[1:-1].replace("''", "'") if quoted else value
    return out
