"""Findings of the doctor, and the changes that it proposes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import DeviceReport, EngineConfig, InstallationReport
from engine.hardware import Hardware, RopeScaling
from gateway.doctor import findings as module
from gateway.doctor.diagnosis import Diagnosis, Repacking
from gateway.doctor.findings import REINSTALL, Level, findings
from tests.gateway.doctor.reports import BUILD, EXAMINED, MACHINE, MODEL, SERVING, WELL, examined


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GPU_FILES", {})


def machine(**fields: Any) -> Diagnosis:
    return replace(WELL, installation=InstallationReport(machine=replace(MACHINE, **fields), build=BUILD))


def build(**fields: Any) -> Diagnosis:
    return replace(WELL, installation=InstallationReport(machine=MACHINE, build=replace(BUILD, **fields)))


def model(**fields: Any) -> Diagnosis:
    return examined(serving=replace(SERVING, model=replace(MODEL, **fields)))


def found(diagnosis: Diagnosis) -> list[tuple[Level, str]]:
    return [(finding.level, finding.text) for finding in findings(diagnosis)]


def test_a_healthy_machine_has_no_findings() -> None:
    assert found(WELL) == []


@pytest.mark.parametrize(
    ("diagnosis", "level", "text"),
    [
        (
            replace(WELL, installation=None, models=(), failure="llama.cpp cannot be used: no library"),
            Level.PROBLEM,
            "llama.cpp cannot be used: no library",
        ),
        (examined(serving=None, failure="it has an encoder"), Level.PROBLEM, "it has an encoder"),
        (
            build(features=frozenset({"AVX", "AVX2", "AVX512"})),
            Level.WARNING,
            f"llama.cpp is built for AVX512, which this CPU lacks, and will crash: {REINSTALL}",
        ),
        (
            build(features=frozenset({"AVX"})),
            Level.WARNING,
            f"llama.cpp is built without AVX2, which this CPU has, and is slower: {REINSTALL}",
        ),
        (
            replace(WELL, repacking=Repacking.CRASHES),
            Level.WARNING,
            (
                "weights repacked for this CPU crash in this build; they are loaded as they are, which may be slower. "
                f"A newer compiler may help: {REINSTALL}"
            ),
        ),
        (machine(quota=1.5), Level.ADVICE, "a control group allows 1.5 of 8 processors: more make it faster"),
        (
            machine(available=2**30),
            Level.WARNING,
            (
                "the weights need 4.0 GiB, and 1.0 GiB are free: they are read from the disk again in each step; "
                "choose a smaller quantisation"
            ),
        ),
        (
            model(trained_context=32768),
            Level.ADVICE,
            (
                "slots have 4096 of the 32768 tokens that the model was trained on; --slots 4 allows 8192 and more "
                "free memory allows more"
            ),
        ),
        (
            model(chat_template=None),
            Level.WARNING,
            "the model has no chat template, so that chats are refused: --chat-template FILE",
        ),
        (
            model(chat_template="{% if %}"),
            Level.WARNING,
            (
                "the chat template is not valid, so that chats are refused (line 1: Expected an expression, got 'end "
                "of statement block'): --chat-template FILE"
            ),
        ),
    ],
)
def test_a_finding_says_what_to_change(diagnosis: Diagnosis, level: Level, text: str) -> None:
    assert found(diagnosis) == [(level, text)]


def test_layers_for_a_gpu_that_the_build_does_not_see_are_a_finding() -> None:
    def with_layers(config: EngineConfig, **changes: Any) -> list[tuple[Level, str]]:
        asking = replace(EXAMINED, subject=replace(EXAMINED.subject, config=config))
        return found(replace(build(**changes), models=(asking,)))

    asked = EngineConfig(model="some.gguf", gpu_layers=99)
    text = "--gpu-layers 99 has no effect: this build of llama.cpp sees no GPU"
    assert with_layers(asked) == [(Level.WARNING, text)]
    assert with_layers(replace(asked, gpu_layers=0)) == []
    assert with_layers(replace(asked, hardware=Hardware(devices=()))) == []
    gpu = DeviceReport(name="CUDA0", description="Some GPU", memory=2**30, free=2**30)
    assert with_layers(asked, offloads=True, devices=(gpu,)) == []


def test_a_gpu_that_llama_cpp_does_not_use_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_GPU_FILES", {"CUDA": tmp_path, "HIP": tmp_path / "none"})
    ((level, text),) = found(WELL)
    assert level is Level.WARNING
    assert text == (f"this machine has a GPU, and llama.cpp is built without it: CMAKE_ARGS=-DGGML_CUDA=on {REINSTALL}")
    ((_, text),) = found(build(offloads=True))
    assert "llama.cpp sees none" in text
    device = DeviceReport(name="CUDA0", description="Some GPU", free=2**34, memory=2**34)
    assert found(build(offloads=True, devices=(device,))) == []


@pytest.mark.parametrize(("own", "levels"), [(2**34, []), (0, [Level.WARNING])])
def test_memory_of_a_gpu_counts_unless_it_is_the_hosts(own: int, levels: list[Level]) -> None:
    device = DeviceReport(name="CUDA0", description="Some GPU", free=2**34, memory=2**34)
    installation = InstallationReport(
        machine=replace(MACHINE, available=2**20), build=replace(BUILD, offloads=True, devices=(device,), gpu_free=own)
    )
    assert [level for level, _ in found(replace(WELL, installation=installation))] == levels


def test_a_template_of_the_operator_replaces_the_models() -> None:
    serving = replace(SERVING, model=replace(MODEL, chat_template=None))
    assert found(examined(serving=serving, subject=replace(EXAMINED.subject, template="{{ messages }}"))) == []


def test_a_default_template_is_used_by_a_model_that_has_none() -> None:
    subject = replace(EXAMINED.subject, default_template="{% if %}")
    assert found(examined(subject=subject)) == []
    serving = replace(SERVING, model=replace(MODEL, chat_template=None))
    ((_, text),) = found(examined(serving=serving, subject=subject))
    assert text.startswith("the chat template is not valid")
    assert found(examined(serving=serving, subject=replace(subject, default_template="{{ messages }}"))) == []


def test_a_model_for_embeddings_needs_neither_a_template_nor_a_long_context() -> None:
    assert found(model(generates=False, chat_template=None, trained_context=10**6)) == []


def test_a_context_that_the_operator_has_set_is_no_finding() -> None:
    serving = replace(SERVING, model=replace(MODEL, trained_context=32768))
    assert found(examined(serving=serving, subject=replace(EXAMINED.subject, sets_context=True))) == []


def test_a_context_longer_than_the_training_context_is_a_finding() -> None:
    text = "slots have 5000 tokens, more than the 4096 that the model was trained on: choose a smaller --context"
    assert found(long_context(RopeScaling())) == [(Level.WARNING, text)]


def test_a_context_that_scaled_positions_extend_is_no_finding() -> None:
    assert found(long_context(RopeScaling(freq_scale=0.5))) == []


def long_context(rope: RopeScaling) -> Diagnosis:
    """Return the reports with a context that the operator has set, and that the model was not trained on."""
    subject = replace(EXAMINED.subject, config=EngineConfig(model="some.gguf", rope=rope), sets_context=True)
    return examined(serving=replace(SERVING, model=replace(MODEL, context=5000)), subject=subject)


@pytest.mark.parametrize("most", [1, 8])
def test_more_threads_than_processors_are_a_finding(most: int) -> None:
    def warnings(**threads: Any) -> list[str]:
        subject = replace(EXAMINED.subject, config=EngineConfig(model="some.gguf", **threads))
        limited = replace(machine(usable_processors=most), models=(replace(EXAMINED, subject=subject),))
        return [text for level, text in found(limited) if level is Level.WARNING]

    assert warnings(threads=most, threads_batch=most) == []
    rest = f"is more than the number of processors that may be used ({most}): steps are much slower"
    assert warnings(threads=most + 1) == [f"--threads {most + 1} {rest}"]
    assert warnings(threads_batch=most + 1) == [f"--threads-batch {most + 1} {rest}"]


def test_an_unknown_cpu_is_no_finding() -> None:
    assert found(machine(features=frozenset())) == []


def test_the_weightiest_finding_is_first() -> None:
    models = examined(serving=None, failure="it has an encoder").models
    diagnosis = replace(machine(quota=1), repacking=Repacking.CRASHES, models=models)
    assert [(finding.level, finding.model) for finding in findings(diagnosis)] == [
        (Level.PROBLEM, "some"),
        (Level.WARNING, None),
        (Level.ADVICE, None),
    ]
