"""The compilation of an operator's template in a process of its own."""

import io
import resource
import sys

import pytest

from gateway.chat import template_file


def test_a_template_compiles_where_the_system_refuses_limits_of_memory(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def refuse(_kind: int, _limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")  # as macOS does

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(sys, "platform", "darwin")
    for source, complaint in ((b"{{ messages }}", b""), (b"{% if %}", b"line 1: ")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(source)))
        template_file.main()
        sys.stdout.flush()
        assert capfdbinary.readouterr().out.startswith(complaint)
