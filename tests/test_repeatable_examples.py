"""Examples of Hypothesis: always the same ones, whichever modules the other tests have imported."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis.strategies import integers, text

CONSTANTS = "\n".join(f"A{number} = {number * 10**6}; B{number} = 'constant {number}'" for number in range(100))


def drawn() -> list[tuple[int, str]]:
    """Return the examples of a test."""
    values: list[tuple[int, str]] = []

    @given(integers(), text())
    def draw(number: int, word: str) -> None:
        values.append((number, word))

    draw()
    return values


def test_an_imported_module_does_not_change_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = drawn()
    module = ModuleType("with_constants")
    module.__file__ = str(tmp_path / "with_constants.py")
    Path(module.__file__).write_text(CONSTANTS, encoding="utf-8")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert drawn() == before
