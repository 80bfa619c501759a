"""The command `doctor`: its output, its exit codes, and what it remembers."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine import CheckupError, EngineConfig, RepackCache, embedded_model
from gateway.doctor import diagnosis as module
from gateway.doctor.diagnosis import Diagnosis, Subject
from tests.gateway.commands import ended
from tests.gateway.doctor.reports import EXAMINED, MODEL, SERVING, WELL
from tests.gateway.doctor.reports import examined as reports_of
from tests.repeat import thorough

TINY = str(embedded_model())


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setattr("gateway.doctor.findings._GPU_FILES", {})


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[list[Subject]]:
    """The models that each call of the command examines; none really is."""
    calls: list[list[Subject]] = []

    def diagnose(subjects: list[Subject]) -> Diagnosis:
        calls.append(subjects)
        return replace(WELL, models=tuple(replace(EXAMINED, subject=subject) for subject in subjects))

    monkeypatch.setattr("gateway.doctor.command.diagnose", diagnose)
    return calls


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command and returns its exit code, its output and its remarks."""

    return partial(ended, capsys, "doctor")


def test_the_real_machine_and_the_embedded_model(run: Run) -> None:
    code, out, _ = run(TINY, "--slots", "3", "--context", "512", "--json")
    printed: dict[str, Any] = orjson.loads(out)
    assert code == 0
    assert printed["machine"]["memory"] > printed["machine"]["available"] > 0
    assert printed["build"]["repacking"] == "works"
    (one,) = printed["models"]
    assert (one["name"], one["model"]["architecture"], one["model"]["tool_format"]) == ("tiny", "llama", "hermes")
    assert (one["serving"]["slots"], one["serving"]["context"]) == (3, 512)
    assert one["serving"]["kv_bytes"] == 3 * 512 * one["model"]["bytes_per_token"]
    assert (one["serving"]["backend_sampling"], one["serving"]["aborts_steps"]) == (False, True)
    assert [finding for finding in printed["findings"] if finding["level"] == "problem"] == []
    assert RepackCache().works() is True


def test_the_text_has_all_parts(examined: list[list[Subject]], run: Run) -> None:
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
    assert examined == [[Subject(name="tiny", config=EngineConfig(model=TINY, log_name="tiny"))]]


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{{ messages }}", "without tools, which the system message describes instead\n"),
        ("{{ tools }}<tool_call>", "tools as hermes\n"),
        ("{{ tools }}<tool_call><think></think>", "tools as hermes, with reasoning\n"),
        ("{{ tools }}<|channel|>", "tools as harmony, with reasoning\n"),
        ("{{ tools }}<|open|>", "tools as kimi-k3, with reasoning\n"),
    ],
)
def test_the_template_shows_the_format_of_tools_and_reasoning(
    run: Run, monkeypatch: pytest.MonkeyPatch, template: str, line: str
) -> None:
    serving = replace(SERVING, model=replace(SERVING.model, chat_template=template))
    monkeypatch.setattr("gateway.doctor.command.diagnose", lambda _: reports_of(serving=serving))
    _, out, _ = run(TINY)
    assert f"  chat template   in the file, {line}" in out


@pytest.mark.parametrize(
    ("backend_sampling", "line"),
    [(None, "best tokens selected by the GPU, if that is measured to be faster at the start"), (True, "best tokens s")],
)
def test_a_gpu_changes_how_tokens_are_selected_and_prompts_end(
    run: Run, monkeypatch: pytest.MonkeyPatch, backend_sampling: bool | None, line: str
) -> None:
    serving = replace(SERVING, backend_sampling=backend_sampling, aborts=False, largest_step=512)
    monkeypatch.setattr("gateway.doctor.command.diagnose", lambda _: reports_of(serving=serving))
    _, out, _ = run(TINY)
    assert f"  sampling        {line}" in out
    assert "  cancel          ends a prompt after a step of at most 512 tokens\n" in out


def test_flags_and_variables_of_serve_count(
    examined: list[list[Subject]], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_GATEWAY_CONTEXT", "1000")
    assert run("--json", TINY, "--slots", "2", "--flash-attention", "off")[0] == 0
    assert run("--model", TINY)[0] == 0
    assert run()[0] == 0
    assert [[subject.config for subject in call] for call in examined] == [
        [EngineConfig(model=TINY, slots=2, context=1000, flash_attention=False, log_name="tiny")],
        [EngineConfig(model=TINY, context=1000, log_name="tiny")],
        [],
    ]


def test_the_model_may_follow_the_flags(examined: list[list[Subject]], run: Run) -> None:
    assert run("--slots", "2", TINY)[0] == run("--slots=2", "--cpu-moe", TINY, "--json")[0] == 0
    assert [(one.config.model, one.config.slots) for call in examined for one in call] == [(TINY, 2), (TINY, 2)]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("--slots", "many"), 2, "--slots 'many': should be a whole number"),
        (("--slots", "/none.gguf"), 2, "--slots '/none.gguf': should be a whole number"),
        (("/none.gguf",), 2, "--model '/none.gguf': there is no such file"),
        (("--slots", "2", "/none.gguf"), 2, "--model '/none.gguf': there is no such file"),
        (("--slots", "2", "a.gguf", "--idle-unload", "3"), 2, "unrecognized arguments: a value stands"),
        (("hf:someone/some-GGUF",), 3, "hf:someone/some-GGUF is not on this machine: llama-gateway pull hf:someone/"),
    ],
)
def test_what_cannot_be_examined_is_one_line(run: Run, arguments: tuple[str, ...], code: int, line: str) -> None:
    found, out, err = run(*arguments)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert err.startswith(f"llama-gateway doctor: {line}")


def test_the_named_model_is_examined_beside_that_of_a_flag(
    examined: list[list[Subject]], run: Run, tmp_path: Path
) -> None:
    other = shutil.copy(TINY, tmp_path / "other.gguf")
    assert run(TINY, "--model", str(other))[0] == 0
    assert [(subject.name, subject.config.model) for subject in examined[0]] == [("tiny", TINY), ("other", str(other))]


def test_each_model_of_the_tables_is_examined_as_it_would_be_served(
    examined: list[list[Subject]], run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        f"slots = 2\nprefix-store = 7\n[models.b]\nfile = '{TINY}'\n"
        f"[models.a]\nfile = '{TINY}'\ncontext = 300\nchat-template = '{{{{ messages }}}}'\n"
        "default-chat-template = '{{ x }}'\n"
    )
    code, out, _ = run("--config", str(file))
    config = EngineConfig(model=TINY, slots=2, prefix_store=7)
    assert (code, examined) == (
        0,
        [
            [
                Subject(name="b", config=replace(config, context=2048, log_name="b")),
                Subject(
                    name="a",
                    config=replace(config, context=300, log_name="a"),
                    template="{{ messages }}",
                    default_template="{{ x }}",
                    sets_context=True,
                ),
            ]
        ],
    )
    headings = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert headings[2:] == ["model b", "b would be served with", "model a", "a would be served with", "findings"]
    assert [one["name"] for one in orjson.loads(run("--config", str(file), "--json")[1])["models"]] == ["b", "a"]


def test_a_file_of_a_folder_that_is_no_model_is_a_problem(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reports = {"installation": WELL.installation, "repacking": True, "serving": SERVING}
    monkeypatch.setattr(module, "examine", lambda name, *_: reports[name])
    shutil.copy(TINY, tmp_path / "a.gguf")
    (tmp_path / "b.gguf").write_text("Not a model.")
    code, out, _ = run("--models-dir", str(tmp_path))
    assert (code, out.count("would be served with")) == (3, 1)
    assert out.endswith("findings\n  problem         b: this is not a GGUF file\n")


def test_one_model_of_several_that_cannot_be_served_ends_with_3(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def examine(name: str, config: EngineConfig, _report: object) -> object:
        if name == "serving" and config.slots == 1:
            raise CheckupError("it has an encoder", crashed=False)
        return {"installation": WELL.installation, "repacking": True, "serving": SERVING}[name]

    monkeypatch.setattr(module, "examine", examine)
    file = tmp_path / "gateway.toml"
    file.write_text(f"[models.a]\nfile = '{TINY}'\nslots = 1\n[models.b]\nfile = '{TINY}'\n")
    code, out, _ = run("--config", str(file))
    assert (code, out.count("would be served with")) == (3, 1)
    assert out.endswith("findings\n  problem         a: it has an encoder\n")


@thorough
def test_a_model_that_never_fits_beside_others_cannot_be_served(run: Run) -> None:
    code, out, _ = run(TINY, "--idle-unload", "9", "--models-memory", "1000", "--json")
    (finding,) = (one for one in orjson.loads(out)["findings"] if one["level"] == "problem")
    assert (code, finding["model"]) == (3, "tiny")
    assert finding["text"].startswith("it is estimated to need ")
    assert "--models-memory allows" in finding["text"]


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


def test_a_trial_of_repacked_weights_that_was_killed_is_no_verdict(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(name: str, _config: EngineConfig, _report: object) -> object:
        if name == "repacking":
            raise CheckupError("The engine process was killed by SIGKILL.", crashed=False)
        return WELL.installation if name == "installation" else SERVING

    monkeypatch.setattr(module, "examine", examine)
    code, out, _ = run(TINY)
    assert (code, "crash" in out) == (0, False)
    assert RepackCache().works() is None


@pytest.mark.parametrize(
    ("failing", "error", "text"),
    [
        ("installation", CheckupError("It exited.", crashed=False), "llama.cpp cannot be used: It exited."),
        ("serving", CheckupError("It was killed.", crashed=True), "llama.cpp crashes on this model: It was killed."),
        ("serving", CheckupError("It timed out.", crashed=False), "It timed out."),
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
    model = "tiny" if failing == "serving" else None
    assert orjson.loads(out)["findings"][0] == {"level": "problem", "text": text, "model": model}
    assert run(TINY)[1].endswith(f"findings\n  problem         {text}\n")


@pytest.mark.parametrize(("ranks", "use"), [(False, "embeddings of 768 numbers"), (True, "ranking of documents")])
def test_a_model_that_does_not_generate_has_no_slots(
    run: Run, monkeypatch: pytest.MonkeyPatch, ranks: bool, use: str
) -> None:
    model = replace(MODEL, generates=False, ranks=ranks, embedding_size=768, chat_template=None)
    serving = replace(SERVING, model=model)
    monkeypatch.setattr("gateway.doctor.command.diagnose", lambda _: reports_of(serving=serving))
    code, out, _ = run(TINY)
    assert code == 0
    assert f"  use             {use}\n" in out
    assert "slots" not in out


def test_a_model_that_only_embeds_here_needs_no_template(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = {"serving": replace(SERVING, model=replace(MODEL, embedding_size=768, chat_template=None))}
    monkeypatch.setattr(module, "examine", lambda what, *_: reports.get(what, WELL.installation))
    _, alone, _ = run(TINY)
    assert "the model has no chat template" in alone
    _, out, _ = run("--embedding-model", TINY)
    assert "embeddings of 768 numbers\n" in out
    assert out.count("no chat template") == 1  # the model that is served besides
