"""Short calls of native code keep the interpreter's lock, and deep ones have a large stack of their own."""

import ctypes
import threading

import llama_cpp

from engine.sampling.native_calls import on_deep_stack, short


def test_a_short_call_gives_the_same_result() -> None:
    rows = (llama_cpp.llama_token_data * 3)(*(llama_cpp.llama_token_data(at, float(at % 2), 0.0) for at in range(3)))
    candidates = llama_cpp.llama_token_data_array(ctypes.cast(rows, llama_cpp.llama_token_data_p), 3, -1, False)
    sampler = llama_cpp.llama_sampler_init_greedy()
    assert sampler
    short(llama_cpp.llama_sampler_apply)(sampler, ctypes.byref(candidates))
    llama_cpp.llama_sampler_free(sampler)
    assert candidates.selected == 1


def test_a_short_call_keeps_the_interpreters_lock() -> None:
    held = ctypes.CDLL(None).PyGILState_Check
    held.argtypes, held.restype = [], ctypes.c_int
    assert held() == 0
    assert short(held)() == 1


def test_only_the_thread_of_a_deep_call_has_a_large_stack() -> None:
    before = threading.stack_size()
    assert on_deep_stack(lambda: 7) == 7
    assert threading.stack_size() == before
