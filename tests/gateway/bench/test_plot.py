"""Plots of summaries."""

import struct
from dataclasses import replace
from pathlib import Path

from gateway.bench.outcome import Failure, Outcome, Usage
from gateway.bench.plot import draw_text, panels, write_png
from gateway.bench.summary import Percentiles, Summary, summarise
from tests.repeat import thorough


def stage(clients: int, seconds: float) -> Summary:
    return summarise(clients, [Outcome(0.0, seconds, ((0.1, 1), (seconds, 1)), Usage(16, 50))])


STAGES = [stage(32, 4.0), stage(1, 1.0), stage(8, 2.0)]
WHOLE = summarise(1, [Outcome(0.0, 2.0)])
FAILED = summarise(1, [Outcome(0.0, 2.0, failure=Failure("cut", "x"))])


def test_panels_are_over_the_number_of_clients() -> None:
    throughput, first, between, end = panels(STAGES)
    assert throughput.lines == {"tokens/s": [(1, 50.0), (8, 25.0), (32, 12.5)]}
    assert first.lines.keys() == between.lines.keys() == end.lines.keys() == {"p50", "p90", "p99"}
    assert end.lines["p99"] == [(1, 1.0), (8, 2.0), (32, 4.0)]


def test_only_measured_quantities_have_a_panel() -> None:
    assert [panel.title for panel in panels([WHOLE])] == ["end to end, s"]
    assert panels([FAILED]) == []


@thorough
def test_a_plot_is_written_as_png(tmp_path: Path) -> None:
    for number, stages in enumerate([STAGES, STAGES[:1], [WHOLE], [FAILED]]):
        path = tmp_path / f"{number}.png"
        write_png(stages, path)
        data = path.read_bytes()
        width, height = struct.unpack(">II", data[16:24])
        assert (data[:8], width > 0, height > 0) == (b"\x89PNG\r\n\x1a\n", True, True)


def test_a_plot_is_drawn_as_text() -> None:
    drawn = draw_text(STAGES)
    for title in ("tokens/s", "to first token, ms", "inter-token, ms", "end to end, s"):
        assert f"({title})" in drawn
    apart = replace(STAGES[0], end_to_end=Percentiles(9, 5.0, 2.0, 6.0, 9.0, 10.0))
    assert all(name in draw_text([apart]) for name in ("p50", "p90", "p99", "(clients)"))
    assert max(map(len, drawn.splitlines())) < 80
    assert draw_text([FAILED]) == ""
