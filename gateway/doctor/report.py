"""A diagnosis as text and as an object for JSON."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from engine import BuildReport, MachineReport, ModelInfo, ServingReport
from gateway.chat.formats import FormatKey, create, recognize
from gateway.doctor.diagnosis import Diagnosis, ModelDiagnosis, Repacking
from gateway.doctor.findings import Finding, gigabytes

Rows: TypeAlias = Iterable[tuple[str, str]]
_INSTRUCTIONS = (
    *("avx", "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"),
    *("asimd", "asimddp", "i8mm", "sve", "sve2", "sme"),
)
"""Instruction sets that llama.cpp's kernels are written for, by the kernel's names: those of x86, then those of ARM."""
_SELECTION = {
    False: "on the CPU",
    True: "best tokens selected by the device of the output layer",
    None: "best tokens selected by the GPU, if that is measured to be faster at the start",
}
"""Place of the selection of the best tokens, by `ServingReport.backend_sampling`."""

_NO_TOOLS = "without tools, which the system message describes instead"
"""Use of tools with a chat template that has none."""


def text_of(diagnosis: Diagnosis, findings: Sequence[Finding]) -> str:
    """Return the diagnosis as text, with the findings at the end."""
    parts = []
    if (installation := diagnosis.installation) is not None:
        parts.append(_section("machine", _machine(installation.machine, installation.build)))
        parts.append(_section("llama.cpp", _build(installation.build, diagnosis.repacking)))
    several = len(diagnosis.models) > 1
    for model in diagnosis.models:
        parts += _model_sections(model, model.subject.name if several else "")
    rows = [(finding.level.value, _line(finding, several=several)) for finding in findings]
    parts.append(_section("findings", rows or [("none", "")]))
    return "\n".join(parts)


def object_of(diagnosis: Diagnosis, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the diagnosis as an object for JSON."""
    installation = diagnosis.installation
    return {
        "machine": installation and {**asdict(installation.machine), "features": _features(installation.machine)},
        "build": installation and {**_build_object(installation.build), "repacking": diagnosis.repacking.value},
        "models": [_examined_object(model) for model in diagnosis.models],
        "findings": [asdict(finding) for finding in findings],
    }


def _model_sections(diagnosis: ModelDiagnosis, name: str) -> list[str]:
    if diagnosis.serving is None:
        return []
    return [
        _section(f"model {name}".strip(), _model(diagnosis.serving, diagnosis.template)),
        _section(f"{name} would be served with".strip(), _serving(diagnosis.serving)),
    ]


def _line(finding: Finding, *, several: bool) -> str:
    return f"{finding.model}: {finding.text}" if several and finding.model else finding.text


def _examined_object(diagnosis: ModelDiagnosis) -> dict[str, Any]:
    serving = diagnosis.serving
    return {
        "name": diagnosis.subject.name,
        "model": serving and _model_object(serving, diagnosis.template),
        "serving": serving and _serving_object(serving),
    }


def _section(title: str, rows: Rows) -> str:
    return "".join([f"{title}\n", *(f"  {name:<16}{text}".rstrip() + "\n" for name, text in rows)])


def _machine(machine: MachineReport, build: BuildReport) -> Rows:
    yield "CPU", machine.cpu
    quota = "" if machine.quota is None else f", quota {machine.quota:g}"
    yield "cores", f"{machine.cores} usable, of {machine.processors} processors{quota}"
    yield "instructions", ", ".join(_features(machine)) or "none that matter"
    yield "memory", f"{gigabytes(machine.available)} free of {gigabytes(machine.memory)}"
    for device in build.devices:
        yield device.name, f"{device.description}, {gigabytes(device.free)} free of {gigabytes(device.memory)}"


def _build(build: BuildReport, repacking: Repacking) -> Rows:
    yield "version", f"llama-cpp-python {build.bindings}, llama.cpp {build.version}, ggml {build.ggml}"
    yield "built with", ", ".join(sorted(build.features))
    yield "GPU offload", "yes" if build.offloads else "no"
    use = "used" if build.repacks else "not used"
    yield "repacking", f"weights repacked for this CPU: {repacking}, {use} by default"


def _model(serving: ServingReport, template: str | None) -> Rows:
    model = serving.model
    yield "description", f"{model.description}, architecture {model.architecture}"
    yield "weights", f"{gigabytes(model.size)}, {model.parameters:,} parameters"
    yield "context", f"{model.trained_context:,} tokens trained, {serving.token_bytes / 1024:g} KiB of KV cells each"
    yield "use", _use(model)
    yield "chat template", _template(serving, template)


def _use(model: ModelInfo) -> str:
    if model.generates:
        return "text generation"
    return "ranking of documents" if model.ranks else f"embeddings of {model.embedding_size} numbers"


def _template(serving: ServingReport, own: str | None) -> str:
    if (key := _format(serving.model, own)) is None:
        return "none"
    tools = _NO_TOOLS if key.name == "plain-without-tools" else f"tools as {key.name}"
    thinks = ", with reasoning" if create(key).reasoning_tags else ""
    return f"{'of the operator' if own else 'in the file'}, {tools}{thinks}"


def _format(model: ModelInfo, own: str | None) -> FormatKey | None:
    """Return the format of tool calls and reasoning; None without a chat template."""
    source = own or model.tool_template or model.chat_template
    return None if source is None else recognize(source)


def _serving(serving: ServingReport) -> Rows:
    model = serving.model
    if model.generates:
        yield "slots", f"{model.slots} of {model.context:,} tokens each"
    yield "memory", f"{gigabytes(model.size)} weights, {gigabytes(serving.cache_bytes)} KV cache"
    if model.generates:
        yield "sampling", _SELECTION[serving.backend_sampling]
        after = "at once" if serving.aborts else f"after a step of at most {serving.largest_step} tokens"
        yield "cancel", f"ends a prompt {after}"
    yield "prefix store", f"at most {gigabytes(serving.prefix_store)}"


def _features(machine: MachineReport) -> list[str]:
    return [name for name in _INSTRUCTIONS if name in machine.features]


def _build_object(build: BuildReport) -> dict[str, Any]:
    return {**asdict(build), "features": sorted(build.features)}


def _model_object(serving: ServingReport, own: str | None) -> dict[str, Any]:
    model, key = serving.model, _format(serving.model, own)
    return {
        "description": model.description,
        "architecture": model.architecture,
        "parameters": model.parameters,
        "weight_bytes": model.size,
        "trained_context": model.trained_context,
        "bytes_per_token": serving.token_bytes,
        "generates": model.generates,
        "chat_template": key is not None,
        "tool_format": key and key.name,
    }


def _serving_object(serving: ServingReport) -> dict[str, Any]:
    model = serving.model
    return {
        "slots": model.slots,
        "context": model.context,
        "kv_bytes": serving.cache_bytes,
        "prefix_store_bytes": serving.prefix_store,
        "backend_sampling": serving.backend_sampling,
        "aborts_steps": serving.aborts,
        "largest_step": serving.largest_step,
        "context_by_slots": {str(slots): context for slots, context in serving.contexts.items()},
    }
