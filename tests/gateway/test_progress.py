"""The display of load progress."""

import logging
import sys

import pytest

from gateway.progress import ProgressBar, ProgressLog, progress_for


def test_progress_is_logged_at_each_quarter(caplog: pytest.LogCaptureFixture) -> None:
    lines = ProgressLog("tiny", "loading")
    with caplog.at_level(logging.INFO, "gateway.progress"):
        for share in (0.0, 0.1, 0.24, 0.25, 0.3, 0.8, 0.9, 1.0):
            lines.show(share)
    lines.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"loading tiny: {percent} %" for percent in (0, 25, 80, 100)
    ]


def test_progress_on_a_terminal_is_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = progress_for("tiny")
    assert isinstance(bar, ProgressBar)
    bar.show(0.5)
    bar.show(1.0)
    bar.close()
    text = capsys.readouterr().err
    assert "loading tiny   0%" in text
    assert text.endswith("\r")


def test_progress_elsewhere_is_log_lines() -> None:
    assert isinstance(progress_for("tiny"), ProgressLog)
