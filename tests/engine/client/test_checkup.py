"""Examinations in processes of their own, on the real llama.cpp and on processes that die."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from engine import CheckupError, EngineConfig, InstallationReport, ServingReport, embedded_model, examine
from engine.client import checkup
from engine.hardware import Hardware
from tests.architectures.models import family_model
from tests.models import model_path

CONFIG = EngineConfig(model=str(model_path()), slots=4, context=128)


def test_the_installation_is_what_this_process_can_see_of_it() -> None:
    report = examine("installation", CONFIG, InstallationReport)
    assert report.machine.processors == os.cpu_count()
    assert 1 <= report.machine.cores <= report.machine.processors
    assert 0 < report.machine.available <= report.machine.memory
    assert report.build.bindings.count(".") >= 2
    assert report.build.ggml.endswith(")")
    assert report.build.features
    assert report.build.offloads or not report.build.devices


def test_a_model_is_described_with_what_would_be_chosen() -> None:
    report = examine("serving", CONFIG, ServingReport)
    assert (report.model.slots, report.model.context) == (4, 128)
    assert report.model.size > 0
    assert report.cache_bytes == pytest.approx(4 * 256 * report.token_bytes, abs=10_000)  # whole blocks of 256 tokens
    assert report.contexts == {2: 128, 8: 128}


def test_weights_of_the_embedded_model_can_be_quantised_and_repacked() -> None:
    assert examine("repacking", EngineConfig(model=str(embedded_model())), bool)


def test_a_model_that_cannot_be_loaded_gives_llama_cpps_reason(tmp_path: Path) -> None:
    file = tmp_path / "notes.gguf"
    file.write_text("Not a model.")
    with pytest.raises(CheckupError, match=r"notes\.gguf is not a GGUF file$") as caught:
        examine("serving", EngineConfig(model=str(file)), ServingReport)
    assert not caught.value.crashed


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (EngineConfig(model=str(family_model("mamba")), context_shift=True), "mamba.gguf cannot shift its context"),
        (EngineConfig(model=str(family_model("lfm-2")), context_shift=True), "lfm-2.gguf cannot shift its context"),
        (replace(CONFIG, hardware=Hardware(cpus=tuple(range(4096)))), "--cpus: this process may not use "),
    ],
    ids=["recurrent", "hybrid", "cpus"],
)
def test_an_examination_refuses_what_an_engine_refuses(config: EngineConfig, reason: str) -> None:
    with pytest.raises(CheckupError, match=reason) as caught:
        examine("serving", config, ServingReport)
    assert not caught.value.crashed


@pytest.mark.parametrize(
    ("program", "crashed", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", True, "The engine process was killed by SIGILL."),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", False, "The engine process was killed by SIGKILL."),
        ("import sys; sys.exit('no such library')", False, "The engine process exited with code 1. Its last words: no"),
    ],
)
def test_an_unexpected_end_is_a_finding_and_a_crash_only_by_llama_cpps_own_code(
    monkeypatch: pytest.MonkeyPatch, program: str, crashed: bool, reason: str
) -> None:
    monkeypatch.setattr(checkup, "command_for", lambda _module: ["/usr/bin/env", "python3", "-c", program])
    with pytest.raises(CheckupError) as caught:
        examine("installation", CONFIG, InstallationReport)
    assert caught.value.crashed == crashed
    assert str(caught.value).startswith(reason)


def test_a_process_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "command_for", lambda _module: ["/bin/sh", "-c", "exec sleep 100"])
    monkeypatch.setattr(checkup, "_TIMEOUT", 0.05)
    with pytest.raises(CheckupError, match=r"did not answer within 0\.05 s") as caught:
        examine("installation", CONFIG, InstallationReport)
    assert not caught.value.crashed
