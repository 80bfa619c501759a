"""Counting calls into llama.cpp, to see that what was made is freed."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import llama_cpp
import pytest


def count_calls(monkeypatch: pytest.MonkeyPatch, *names: str) -> Counter[str]:
    """Counts, from now on, the calls of C functions that make something, where they succeed, and that free it."""
    counted: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object) -> object:
            result = function(*arguments)
            counted[name] += name.endswith("free") or bool(result)
            return result

        return call

    for name in names:
        monkeypatch.setattr(llama_cpp, name, counting(name, getattr(llama_cpp, name)))
    return counted
