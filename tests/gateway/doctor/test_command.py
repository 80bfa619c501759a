"""The command `doctor`: its output, its exit codes, and what it remembers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine import CheckupError, EngineConfig, RepackCache, embedded_model
from gateway.__main__ import main
from gateway.doctor import diagnosis as module
from gateway.doctor.diagnosis import Diagnosis
from tests.gateway.doctor.reports import MODEL, SERVING, WELL

TINY = str(embedded_model())


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr("gateway.doctor.findings._GPU_FILES", {})


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[EngineConfig | None]:
    """The configurations that the command examines; none really is."""
    configs: list[EngineConfig | None] = []

    def diagnose(config: EngineConfig | None) -> Diagnosis:
        configs.append(config)
        return WELL if config else replace(WELL, serving=None)

    monkeypatch.setattr("gateway.doctor.command.diagnose", diagnose)
    return configs


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command and returns its exit code, its output and its remarks."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(["doctor", *arguments])
        except SystemExit as exit_:
            code = int(str(exit_.code))
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_the_real_machine_and_the_embedded_model(run: Run) -> None:
    code, out, _ = run(TINY, "--slots", "3", "--context", "512", "--json")
    printed: dict[str, Any] = orjson.loads(out)
    assert code == 0
    assert printed["machine"]["memory"] > printed["machine"]["available"] > 0
    assert printed["build"]["repacking"] == "works"
    assert (printed["model"]["architecture"], printed["model"]["tool_format"]) == ("llama", "hermes")
    assert (printed["serving"]["slots"], printed["serving"]["context"]) == (3, 512)
    assert printed["serving"]["kv_bytes"] == 3 * 512 * printed["model"]["bytes_per_token"]
    assert (printed["serving"]["backend_sampling"], printed["serving"]["aborts_steps"]) == (False, True)
    assert [finding for finding in printed["findings"] if finding["level"] == "problem"] == []
    assert RepackCache().works() is True


def test_the_text_has_all_parts(examined: list[EngineConfig | None], run: Run) -> None:
    code, out, _ = run(TINY)
    assert code == 0
    assert [line for line in out.splitlines() if line and not line.startswith(" ")] == [
        *("machine", "llama.cpp", "model", "would be served with", "findings")
    ]
    assert "  slots           8 of 4,096 tokens each\n" in out
    assert "  context         4,096 tokens trained, 1 KiB of KV cells each\n" in out
    assert "  chat template   in the file, tools as plain\n" in out
    assert "  sampling        on the CPU\n" in out
    assert "  cancel          ends a prompt at once\n" in out
    assert examined == [EngineConfig(model=TINY)]


@pytest.mark.parametrize(
    ("backend_sampling", "line"),
    [(None, "best tokens selected by the GPU, if that is measured to be faster at the start"), (True, "best tokens s")],
)
def test_a_gpu_changes_how_tokens_are_selected_and_prompts_end(
    run: Run, monkeypatch: pytest.MonkeyPatch, backend_sampling: bool | None, line: str
) -> None:
    serving = replace(SERVING, backend_sampling=backend_sampling, aborts=False, largest_step=512)
    monkeypatch.setattr("gateway.doctor.command.diagnose", lambda _: replace(WELL, serving=serving))
    _, out, _ = run(TINY)
    assert f"  sampling        {line}" in out
    assert "  cancel          ends a prompt after a step of at most 512 tokens\n" in out


def test_flags_and_variables_of_serve_count(
    examined: list[EngineConfig | None], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_GATEWAY_CONTEXT", "1000")
    assert run("--json", TINY, "--slots", "2", "--flash-attention", "off")[0] == 0
    assert run("--model", TINY)[0] == 0
    assert run()[0] == 0
    assert examined == [
        EngineConfig(model=TINY, slots=2, context=1000, flash_attention=False),
        EngineConfig(model=TINY, context=1000),
        None,
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("--slots", "many"), 2, "--slots 'many': should be a valid integer, unable to parse string as an integer"),
        (("/none.gguf",), 2, "--model '/none.gguf': there is no such file"),
        (("hf:someone/some-GGUF",), 3, "hf:someone/some-GGUF is not on this machine: llama-gateway pull hf:someone/"),
    ],
)
def test_what_cannot_be_examined_is_one_line(run: Run, arguments: tuple[str, ...], code: int, line: str) -> None:
    found, out, err = run(*arguments)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(f"llama-gateway doctor: {line}")


def test_a_crash_by_repacked_weights_is_a_finding_that_starts_remember(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(name: str, _config: EngineConfig, _report: object) -> object:
        if name == "repacking":
            raise CheckupError("The engine process was killed by SIGILL.", crashed=True)
        return WELL.installation if name == "installation" else SERVING

    monkeypatch.setattr(module, "examine", examine)
    code, out, _ = run(TINY)
    assert code == 0
    assert "  repacking       weights repacked for this CPU: crashes, not used by default\n" in out
    assert "weights repacked for this CPU crash in this build" in out
    assert RepackCache().works() is False


@pytest.mark.parametrize(
    ("failing", "error", "text"),
    [
        ("installation", CheckupError("It exited.", crashed=True), "llama.cpp cannot be used: It exited."),
        ("serving", CheckupError("It was killed.", crashed=True), "llama.cpp crashes on this model: It was killed."),
        ("serving", CheckupError("it has an encoder", crashed=False), "it has an encoder"),
    ],
)
def test_a_model_that_cannot_be_served_ends_with_3(
    run: Run, monkeypatch: pytest.MonkeyPatch, failing: str, error: CheckupError, text: str
) -> None:
    def examine(name: str, _config: EngineConfig, _report: object) -> object:
        if name == failing:
            raise error
        return {"installation": WELL.installation, "repacking": True, "serving": SERVING}[name]

    monkeypatch.setattr(module, "examine", examine)
    code, out, _ = run(TINY, "--json")
    assert code == 3
    assert orjson.loads(out)["findings"][0] == {"level": "problem", "text": text}
    assert run(TINY)[1].endswith(f"findings\n  problem         {text}\n")


def test_a_model_for_embeddings_has_no_slots(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = replace(SERVING, model=replace(MODEL, generates=False, embedding_size=768, chat_template=None))
    monkeypatch.setattr("gateway.doctor.command.diagnose", lambda _config: replace(WELL, serving=serving))
    code, out, _ = run(TINY)
    assert code == 0
    assert "  use             embeddings of 768 numbers\n" in out
    assert "slots" not in out
