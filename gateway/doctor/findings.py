"""Findings: what hinders this machine or this model, and what to change."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from engine import BuildReport, EngineConfig, InstallationReport, MachineReport, ModelInfo, ServingReport
from engine.hardware import RopeScaling
from gateway.chat.template import ChatTemplate
from gateway.doctor.diagnosis import Diagnosis, ModelDiagnosis, Repacking

REINSTALL = "pip install --force-reinstall --no-deps --no-cache-dir llama-cpp-python"
_FEATURES = {
    "avx": "AVX",
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "avx512f": "AVX512",
    "amx_int8": "AMX_INT8",
    "asimddp": "DOTPROD",
    "i8mm": "MATMUL_INT8",
    "sve": "SVE",
}
"""Instruction sets that decide the speed: the kernel's name and llama.cpp's."""
_GPU_FILES = {"CUDA": Path("/dev/nvidia0"), "HIP": Path("/dev/kfd")}
"""Device files of GPUs by the CMake option for them, `GGML_…`."""


class Level(StrEnum):
    """Weight of a finding."""

    PROBLEM = "problem"
    """The model cannot be served."""
    WARNING = "warning"
    """It is slower, or something does not work."""
    ADVICE = "advice"
    """More is possible."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding."""

    level: Level
    """Weight."""
    text: str
    """The finding and what to change, as one line."""
    model: str | None = None
    """Name of the model that it is about; unset if it is about the machine or the build."""


def findings(diagnosis: Diagnosis) -> list[Finding]:
    """Return all findings, the weightiest first."""
    found = [Finding(Level.PROBLEM, diagnosis.failure)] if diagnosis.failure else []
    if diagnosis.installation is not None:
        found += _of_installation(diagnosis.installation, diagnosis.repacking)
        for model in diagnosis.models:
            own = _of_model(diagnosis.installation, model)
            found += (replace(finding, model=model.subject.name) for finding in own)
    return sorted(found, key=lambda finding: list(Level).index(finding.level))


def _of_model(installation: InstallationReport, model: ModelDiagnosis) -> Iterator[Finding]:
    if model.failure:
        yield Finding(Level.PROBLEM, model.failure)
    yield from _of_threads(installation.machine, model.subject.config)
    yield from _of_gpu_layers(installation.build, model.subject.config)
    if model.serving is not None:
        yield from _of_weights(installation, model.serving.model)
        if not model.subject.sets_context:
            yield from _of_context(model.serving)
        elif model.subject.config.rope == RopeScaling():  # scaled positions extend the training context
            yield from _of_long_context(model.serving.model)
        yield from _of_template(model.serving.model, model.template)


def _of_installation(report: InstallationReport, repacking: Repacking) -> Iterator[Finding]:
    machine, build = report.machine, report.build
    known = {name for feature, name in _FEATURES.items() if feature in machine.features}
    if foreign := sorted((set(_FEATURES.values()) & build.features) - known) if machine.features else []:
        text = f"llama.cpp is built for {', '.join(foreign)}, which this CPU lacks, and will crash: {REINSTALL}"
        yield Finding(Level.WARNING, text)
    if unused := sorted(known - build.features - {"AMX_INT8"}):  # with many compilers AMX crashes, or is left out
        text = f"llama.cpp is built without {', '.join(unused)}, which this CPU has, and is slower: {REINSTALL}"
        yield Finding(Level.WARNING, text)
    if repacking is Repacking.CRASHES:
        text = "weights repacked for this CPU crash in this build; they are loaded as they are, which may be slower"
        yield Finding(Level.WARNING, f"{text}. A newer compiler may help: {REINSTALL}")
    yield from _of_gpus(build)
    yield from _of_quota(machine)


def _of_gpus(build: BuildReport) -> Iterator[Finding]:
    for option, file in _GPU_FILES.items():
        if file.exists() and not build.devices:
            why = "sees none" if build.offloads else "is built without it"
            text = f"this machine has a GPU, and llama.cpp {why}: CMAKE_ARGS=-DGGML_{option}=on {REINSTALL}"
            yield Finding(Level.WARNING, text)


def _of_quota(machine: MachineReport) -> Iterator[Finding]:
    if machine.quota is not None and machine.quota < machine.processors:
        text = f"a control group allows {machine.quota:g} of {machine.processors} processors: more make it faster"
        yield Finding(Level.ADVICE, text)


def _of_threads(machine: MachineReport, config: EngineConfig) -> Iterator[Finding]:
    for flag, threads in ("--threads", config.threads), ("--threads-batch", config.threads_batch):
        if threads and threads > machine.usable_processors:
            usable = f"the number of processors that may be used ({machine.usable_processors})"
            text = f"{flag} {threads} is more than {usable}: steps are much slower"
            yield Finding(Level.WARNING, text)


def _of_gpu_layers(build: BuildReport, config: EngineConfig) -> Iterator[Finding]:
    if config.gpu_layers > 0 and config.hardware.devices is None and not build.devices:
        text = f"--gpu-layers {config.gpu_layers} has no effect: this build of llama.cpp sees no GPU"
        yield Finding(Level.WARNING, text)


def _of_weights(report: InstallationReport, model: ModelInfo) -> Iterator[Finding]:
    free = report.machine.available + report.build.gpu_free
    if model.size > free:
        text = f"the weights need {gigabytes(model.size)}, and {gigabytes(free)} are free: they are read from the disk "
        yield Finding(Level.WARNING, f"{text}again in each step; choose a smaller quantisation")


def _of_context(serving: ServingReport) -> Iterator[Finding]:
    model = serving.model
    if not model.generates or model.context >= model.trained_context:
        return
    more = {slots: context for slots, context in serving.contexts.items() if context > model.context}
    ways = [f"--slots {slots} allows {context}" for slots, context in sorted(more.items(), reverse=True)]
    text = f"slots have {model.context} of the {model.trained_context} tokens that the model was trained on"
    yield Finding(Level.ADVICE, f"{text}; {' and '.join([*ways, 'more free memory allows more'])}")


def _of_long_context(model: ModelInfo) -> Iterator[Finding]:
    if model.generates and 0 < model.trained_context < model.context:
        text = f"slots have {model.context} tokens, more than the {model.trained_context} that the model was trained on"
        yield Finding(Level.WARNING, f"{text}: choose a smaller --context")


def _of_template(model: ModelInfo, own: str | None) -> Iterator[Finding]:
    source = own or model.chat_template
    if not model.generates:
        return
    if source is None:
        yield Finding(Level.WARNING, "the model has no chat template, so that chats are refused: --chat-template FILE")
        return
    try:
        ChatTemplate(source, bos=model.bos, eos=model.eos)
    except ValueError as error:
        text = f"the chat template is not valid, so that chats are refused ({error}): --chat-template FILE"
        yield Finding(Level.WARNING, text)


def gigabytes(size: float) -> str:
    """Return bytes in GiB or MiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
