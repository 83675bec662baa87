#!/usr/bin/env python3
"""Draws the plots of docs/performance.md from the tables of that page, so that a plot and its table agree.

    python3 bench/plots.py           writes docs/performance-*.svg
    python3 bench/plots.py --check   exits with 1 if a file differs from what would be written

The tables are those after a comment "table: NAME". Needs nothing but Python 3.9.
"""
from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
WIDTH, LEFT, RIGHT = 760, 170, 190
BAR, GAP = 13, 12

STYLE = """.page{fill:#ffffff;stroke:#d0d7de}.text{fill:#1f2328}.small{fill:#57606a;font-size:12px}
.axis{stroke:#57606a;stroke-dasharray:3 3}.other{fill:#8c959f}.ours{fill:#0969da}
@media (prefers-color-scheme:dark){.page{fill:#0d1117;stroke:#30363d}.text{fill:#e6edf3}.small{fill:#9ea7b3}
.axis{stroke:#9ea7b3}.other{fill:#6e7681}.ours{fill:#58a6ff}}"""


def table(name: str) -> list[list[str]]:
    """The rows of a table of the page, without its head."""
    lines = (DOCS / "performance.md").read_text().splitlines()
    rows, at = [], lines.index(f"<!-- table: {name} -->") + 4
    while lines[at].startswith("|"):
        rows.append([cell.strip() for cell in lines[at].strip("|").split("|")])
        at += 1
    return rows


class Plot:
    """Horizontal bars in panels; each row has a bar of either series."""

    def __init__(self, title: str, series: tuple[str, str]):
        self.title, self.series, self.y, self.out = title, series, 62, []

    def text(self, x: float, y: float, text: str, kind: str = "text", anchor: str = "start") -> None:
        self.out.append(f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>')

    def panel(self, heading: str, rows: list[tuple[str, float, float, str, str]], line: float | None = None) -> None:
        """Rows of a label, the two values and their two labels; a dashed line at a value."""
        most = max(max(row[1:3]) for row in rows)
        scale = (WIDTH - LEFT - RIGHT) / most
        self.text(20, self.y + 12, heading)
        self.y += 24
        top = self.y
        for label, first, second, first_label, second_label in rows:
            self.text(LEFT - 10, self.y + BAR + 4, label, "small", "end")
            for value, shown, kind in ((first, first_label, "other"), (second, second_label, "ours")):
                width = value * scale
                self.out.append(f'<rect class="{kind}" x="{LEFT}" y="{self.y}" width="{width:.1f}" height="{BAR}"/>')
                self.text(LEFT + width + 6, self.y + BAR - 2, shown, "small")
                self.y += BAR + 1
            self.y += GAP
        if line is not None:
            x = LEFT + line * scale
            self.out.append(f'<path class="axis" d="M{x:.1f} {top - 4}V{self.y - GAP + 4}"/>')
        self.y += 6

    def svg(self) -> str:
        legend = []
        for i, (name, kind) in enumerate(zip(self.series, ("other", "ours"))):
            x = LEFT + i * 150
            legend.append(f'<rect class="{kind}" x="{x}" y="38" width="{BAR}" height="{BAR}"/>'
                          f'<text class="small" x="{x + BAR + 6}" y="49">{name}</text>')
        height = self.y + 6
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            'aria-labelledby="title" font-family="system-ui, sans-serif" font-size="14">',
            f'<title id="title">{self.title}</title>', f"<style>{STYLE}</style>",
            f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            f'<text class="text" x="20" y="26" font-weight="600">{self.title}</text>',
            *legend, *self.out, "</svg>", ""])


def training() -> Plot:
    plot = Plot("Training: speed of ddl relative to torch.compile", ("Zen 4", "Intel"))
    for size in ("mini", "small"):
        rows = [(f"{model}, {dtype}", float(zen), float(intel), f"{zen}  ({zen_ddl} / {zen_torch} tok/s)",
                 f"{intel}  ({intel_ddl} / {intel_torch} tok/s)")
                for s, model, dtype, intel_torch, intel_ddl, intel, zen_torch, zen_ddl, zen, *_ in table("training")
                if s == size]
        plot.panel(f"size {size} (dashed: the speed of torch.compile)", rows, 1.0)
    return plot


def decode() -> Plot:
    plot = Plot("Decoding with size small, two cores of a Zen 4", ("llama.cpp", "ddl"))
    rows = table("decode")
    for figure in dict.fromkeys(row[1] for row in rows):
        rate = "tokens/s" in figure
        bars = []
        for dtype, name, peer, ours in rows:
            times = float(ours) / float(peer) if rate else float(peer) / float(ours)
            if name == figure:
                bars.append((dtype, float(peer), float(ours), peer, f"{ours}  ({times:.2f} ×)"))
        plot.panel(f"{figure} ({'more' if rate else 'less'} is better)", bars)
    return plot


def memory() -> Plot:
    plot = Plot("Peak memory of a training step", ("torch.compile", "ddl"))
    for size in ("mini", "small"):
        plot.panel(f"size {size}, GiB (less is better)", [
            (f"{row[1]}, {row[2]}", float(row[9]), float(row[10]), row[9],
             f"{row[10]}  ({float(row[10]) / float(row[9]):.2f} ×)") for row in table("training") if row[0] == size])
    return plot


def main() -> int:
    differ = []
    for name, plot in (("training", training()), ("decode", decode()), ("memory", memory())):
        path, text = DOCS / f"performance-{name}.svg", plot.svg()
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            differ.append(path.name)
    if differ:
        print(f"{', '.join(differ)}: differ from the tables of docs/performance.md: run python3 bench/plots.py")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
