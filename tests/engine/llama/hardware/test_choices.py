"""Overrides, the lock on memory, NUMA, and positions: what is refused before a model is loaded."""

import logging
import resource
from pathlib import Path

import llama_cpp
import pytest

from engine.errors import LoadError
from engine.hardware import ALL_LAYERS, Hardware, RopeScaling
from engine.llama.hardware import memory_lock, numa
from engine.llama.hardware.memory_lock import check_lockable
from engine.llama.hardware.overrides import EXPERTS, check_buffers, overrides_of, warn_of_unused
from engine.llama.hardware.rope import check_scale, extended_context, set_rope


def test_experts_stay_in_host_memory_after_the_operators_overrides() -> None:
    own = (("up", "CUDA0"),)
    assert overrides_of(Hardware(override_tensor=own)) == own
    assert overrides_of(Hardware(override_tensor=own, cpu_moe=ALL_LAYERS)) == (*own, (EXPERTS, "CPU"))
    assert overrides_of(Hardware(cpu_moe=2)) == ((rf"blk\.0{EXPERTS}", "CPU"), (rf"blk\.1{EXPERTS}", "CPU"))


def test_an_unknown_buffer_type_is_refused_with_the_known_ones() -> None:
    check_buffers([("up", "CPU")], ["CPU", "CUDA0"])
    with pytest.raises(LoadError) as caught:
        check_buffers([("up", "CUDA1")], ["CPU", "CUDA0"])
    assert str(caught.value) == "--override-tensor up=CUDA1: there is no buffer type CUDA1, only CPU, CUDA0"


def test_a_pattern_that_matches_no_tensor_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_unused([(r"ffn_(up|down)\.", "CPU"), ("fnn", "CPU")], ["blk.0.ffn_up.weight"])
    assert [record.__dict__["pattern"] for record in caplog.records] == ["fnn"]


@pytest.fixture
def unprivileged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nCapEff:\t0000000000000000\n")
    monkeypatch.setattr(memory_lock, "_STATUS", status)


@pytest.mark.usefixtures("unprivileged")
def test_more_than_may_be_locked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (8 << 20, 8 << 20))
    check_lockable(8 << 20)
    with pytest.raises(LoadError) as caught:
        check_lockable(9 << 20)
    assert str(caught.value) == (
        "--load-mode mlock needs 9 MiB of locked memory, and this process may lock 8: raise RLIMIT_MEMLOCK "
        "(ulimit -l, LimitMEMLOCK=) or choose another mode"
    )
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (resource.RLIM_INFINITY,) * 2)
    check_lockable(9 << 20)


def test_a_privileged_process_may_lock_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    status.write_text("CapEff:\t0000000000004000\n")
    monkeypatch.setattr(memory_lock, "_STATUS", status)
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (0, 0))
    check_lockable(9 << 20)


def test_a_strategy_has_llama_cpps_number(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    monkeypatch.setattr(llama_cpp, "llama_numa_init", used.append)
    numa.use_numa("isolate")
    assert used == [2]


def test_positions_are_the_models_unless_scaled() -> None:
    params, default = llama_cpp.llama_context_default_params(), llama_cpp.llama_context_default_params()
    set_rope(params, RopeScaling())
    assert (params.rope_scaling_type, params.rope_freq_scale) == (default.rope_scaling_type, default.rope_freq_scale)
    set_rope(params, RopeScaling(type="yarn", freq_scale=0.25, yarn_ext_factor=0, yarn_beta_fast=8))
    assert params.rope_scaling_type == llama_cpp.LLAMA_ROPE_SCALING_TYPE_YARN
    assert (params.rope_freq_scale, params.yarn_ext_factor, params.yarn_beta_fast) == (0.25, 0, 8)
    assert params.yarn_beta_slow == default.yarn_beta_slow


def test_a_method_without_a_factor_is_refused() -> None:
    check_scale(RopeScaling(), 1)
    check_scale(RopeScaling(type="yarn"), 0.25)
    check_scale(RopeScaling(type="yarn", freq_scale=1), 1)
    with pytest.raises(LoadError, match="--rope-scaling yarn needs --rope-freq-scale: the model has no scale"):
        check_scale(RopeScaling(type="yarn"), 1)


def test_the_context_grows_as_the_positions_are_scaled() -> None:
    assert extended_context(RopeScaling(), 4096, None) == 4096
    assert extended_context(RopeScaling(freq_scale=0.25), 4096, None) == 16384
    assert extended_context(RopeScaling(freq_scale=0.25), 131_072, 32_768) == 131_072
    assert extended_context(RopeScaling(freq_scale=0.5, yarn_orig_ctx=1000), 4096, None) == 2000
