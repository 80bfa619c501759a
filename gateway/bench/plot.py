"""Plots of metrics over the number of clients: PNG by matplotlib, text by plotille. Both are in the extra `[bench]`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gateway.bench.summary import Percentiles, Summary

TERMINAL_SIZE = (50, 10)
"""Columns and lines of one plot."""
_HEADROOM = 1.1
"""Length of an axis relative to the largest value."""


@dataclass(frozen=True)
class Panel:
    """One plot."""

    title: str
    """Title, with the unit."""
    lines: dict[str, list[tuple[int, float]]]
    """Lines by name; each is a list of points (clients, value)."""

    @property
    def right(self) -> float:
        """End of the x axis, which begins at 0. A multiple of five, because the axis has five ticks."""
        most = max(x for points in self.lines.values() for x, _ in points)
        return 5 * math.ceil(most * _HEADROOM / 5)

    @property
    def top(self) -> float:
        """End of the y axis, which begins at 0."""
        return max(y for points in self.lines.values() for _, y in points) * _HEADROOM or 1.0


def panels(summaries: Sequence[Summary]) -> list[Panel]:
    """Return one panel for the throughput and one for each kind of time, if measured."""
    stages = sorted(summaries, key=lambda summary: summary.clients)
    throughput = [(one.clients, one.tokens_per_second) for one in stages if one.tokens_per_second is not None]
    found = [
        Panel("tokens/s", {"tokens/s": throughput} if throughput else {}),
        _times("to first token, ms", [(one.clients, one.time_to_first_token) for one in stages], 1e3),
        _times("inter-token, ms", [(one.clients, one.inter_token) for one in stages], 1e3),
        _times("end to end, s", [(one.clients, one.end_to_end) for one in stages], 1),
    ]
    return [panel for panel in found if panel.lines]


def write_png(summaries: Sequence[Summary], path: Path) -> None:
    """Write all panels to one PNG file."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import, and absent without the extra

    shown = panels(summaries)
    figure = Figure(figsize=(10, 4 * ((len(shown) + 1) // 2) or 4), layout="constrained")
    for number, panel in enumerate(shown, 1):
        axes = figure.add_subplot((len(shown) + 1) // 2, 2, number, title=panel.title, xlabel="clients")
        for name, points in panel.lines.items():
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=name)
        axes.set_xlim(0, panel.right)
        axes.set_ylim(0, panel.top)
        axes.grid(visible=True, alpha=0.3)
        if len(panel.lines) > 1:
            axes.legend(loc="upper left")
    figure.savefig(path, format="png", dpi=120)


def draw_text(summaries: Sequence[Summary]) -> str:
    """Return all panels as text, one below the other."""
    return "\n\n".join(_draw(panel) for panel in panels(summaries))


def _draw(panel: Panel) -> str:
    import plotille  # noqa: PLC0415 - absent without the extra

    figure = plotille.Figure()
    figure.width, figure.height = TERMINAL_SIZE
    figure.with_colors = False
    figure.x_label, figure.y_label = "clients", panel.title
    figure.set_x_limits(0, panel.right)
    figure.set_y_limits(0, panel.top)
    figure.x_ticks_fkt = figure.y_ticks_fkt = _tick
    for name, points in panel.lines.items():
        figure.plot([x for x, _ in points], [y for _, y in points])
        if len(panel.lines) > 1:
            figure.text([points[-1][0]], [points[-1][1]], [name])
    return str(figure.show())


def _tick(value: float | datetime, _next: float | datetime) -> str:
    return f"{value:.3g}"


def _times(title: str, stages: Sequence[tuple[int, Percentiles | None]], scale: float) -> Panel:
    measured = [(clients, times) for clients, times in stages if times is not None]
    names = ("p50", "p90", "p99") if measured else ()
    lines = {name: [(clients, getattr(times, name) * scale) for clients, times in measured] for name in names}
    return Panel(title, lines)
