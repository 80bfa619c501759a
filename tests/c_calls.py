"""Counters of calls into llama.cpp, to check that every object is freed."""

import ctypes
from collections import Counter
from collections.abc import Callable
from typing import Any

import llama_cpp
import pytest


def count_calls(monkeypatch: pytest.MonkeyPatch, *names: str) -> Counter[str]:
    """Count, from now on, the successful calls of the C functions that create an object, and the calls that free it."""
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


class Handles:
    """The live C objects that no other C object owns, by the function that made each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Start to count."""
        self.alive: dict[int, str] = {}
        """The maker of each live object, by its address."""
        self.mistakes: list[str] = []
        """Calls that freed an object that was not alive."""
        makers = ["llama_model_load_from_file", "llama_init_from_model", "llama_batch_init", "llama_sampler_chain_init"]
        makers += [name for name in dir(llama_cpp) if name.startswith("llama_sampler_init_")]
        for name in makers:
            monkeypatch.setattr(llama_cpp, name, self._making(name, getattr(llama_cpp, name)))
        for name in ("llama_model_free", "llama_free", "llama_sampler_free", "llama_batch_free"):
            monkeypatch.setattr(llama_cpp, name, self._losing(name, getattr(llama_cpp, name), 0))
        add = llama_cpp.llama_sampler_chain_add  # the chain owns it from then on
        monkeypatch.setattr(llama_cpp, "llama_sampler_chain_add", self._losing("llama_sampler_chain_add", add, 1))

    def _making(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object) -> object:
            made = function(*arguments)
            if made:
                self.alive[_address(made)] = name
            return made

        return call

    def _losing(self, name: str, function: Callable[..., Any], at: int) -> Callable[..., Any]:
        def call(*arguments: Any) -> object:
            if self.alive.pop(_address(arguments[at]), None) is None:
                self.mistakes.append(name)
            return function(*arguments)

        return call


def _address(handle: Any) -> int:
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0)
