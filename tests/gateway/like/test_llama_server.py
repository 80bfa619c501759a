"""llama-server's command line: the same server, or one line for each flag that has no effect."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.cli import SettingsError, read_settings
from gateway.like.llama_server import LineError, Translated, command_line, translate
from gateway.like.spellings import VALUELESS, variables
from gateway.settings import Settings

FLAGS = (Path(__file__).parents[1] / "llama_server_flags.txt").read_text(encoding="utf-8").split()
"""All spellings of llama-server's flags."""
LEAVING = {"-h", "--help", "--usage", "--version"}
"""Flags that print something and exit."""


def read(line: str, environment: Mapping[str, str] | None = None) -> Settings:
    translated = translate(line.split(), environment or {})
    return read_settings(translated.arguments, translated.environment, translated.defaults)


def model_file(folder: Path, name: str = "m.gguf") -> Path:
    path = folder / name
    path.write_bytes(b"GGUF" + bytes(20))
    return path


def test_a_usual_command_line_starts_the_same_server(tmp_path: Path) -> None:
    model, keys = model_file(tmp_path), tmp_path / "keys"
    keys.write_text("first\nsecond\n", encoding="utf-8-sig")  # as editors on Windows write it
    line = (
        f"-m {model} --alias mine,other --host 0.0.0.0 -c 4096 -np 4 -t -1 -ngl 99 -fa on -b 2048 -ub 512 --no-mmap "
        f"--slots --metrics --embedding --jinja --api-key-file {keys} --timeout 900 --threads-http 4 --cont-batching"
    )
    settings = read(line)
    assert (settings.model, settings.alias, settings.host, settings.port) == (model, "mine,other", "0.0.0.0", 8080)  # noqa: S104
    assert (settings.context, settings.slots, settings.threads, settings.gpu_layers) == (1024, 4, None, 99)
    assert (settings.flash_attention, settings.load_mode) == ("on", "none")
    assert (settings.api_key, settings.request_timeout) == (("first", "second"), 900)


def test_flags_without_an_effect_are_one_line_each_and_their_values_are_skipped() -> None:
    translated = translate(["--log-file", "32", "--no_perf", "--reuse-port", "--port", "1"], {})
    assert translated.arguments == ["serve", "--port=1"]
    assert translated.notes == [
        "--log-file of llama-server has no effect: use --log-level, and redirect standard error",
        "--no-perf of llama-server has no effect: the metrics have the times: GET /metrics",
        "--reuse-port of llama-server has no effect: one process listens",
    ]


def test_only_names_of_flags_lose_their_underscores() -> None:
    values = ("--- end_of_turn ---", "--context_shift off")
    line = ["--top_k", "5", "--n_predict=6", "-r", values[0]]
    arguments = translate(line, {"LLAMA_ARG_TAGS": values[1]}).arguments
    assert arguments == ["serve", "--tags", values[1], "--top-k", "5", "--n-predict=6", "-r", values[0]]


def test_every_flag_is_understood_or_has_one_line(tmp_path: Path) -> None:
    values = [str(model_file(tmp_path))]
    for flag in set(FLAGS) - set(LEAVING):
        given = [] if flag in VALUELESS else values
        try:
            translated = translate([flag, *given, *(["2"] if flag == "--control-vector-layer-range" else [])], {})
            read_settings(translated.arguments, {})
        except (SettingsError, LineError) as error:
            text = str(error)
            assert [word for word in ("unrecognized", "expected one argument", "\n") if word in text] == [], flag


@pytest.mark.parametrize("flag", ["--model-url", "--rpc", "--api-prefix", "--grammar", "--fim-qwen-3b-default"])
def test_what_would_serve_something_else_is_refused(flag: str) -> None:
    with pytest.raises(SettingsError, match=f"^{flag} is a flag of llama-server: "):
        read(f"{flag} value" if flag not in VALUELESS else flag)


def test_variables_are_read_and_flags_win(tmp_path: Path) -> None:
    environment = {
        "LLAMA_ARG_MODEL": str(model_file(tmp_path, "a.gguf")),
        "LLAMA_ARG_CTX_SIZE": "512",
        "LLAMA_ARG_PORT": "81",
        "LLAMA_ARG_CONT_BATCHING": "true",
        "LLAMA_ARG_NO_REPACK": "",
        "LLAMA_ARG_BACKEND_SAMPLING": "1",
        "LLAMA_ARG_CPU_MOE": "0",
        "LLAMA_ARG_UNKNOWN": "1",
        "LLAMA_API_KEY": "key",
    }
    other = model_file(tmp_path, "b.gguf")
    settings = read(f"-m {other} --port 82", environment)
    assert (settings.model, settings.context, settings.port, settings.repack) == (other, 512, 82, "off")
    assert (settings.cpu_moe, settings.api_key, settings.backend_sampling) == (False, ("key",), "on")
    assert read("-bs").backend_sampling == "on"


def test_the_file_and_variables_win_over_defaults_of_llama_server(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('port = 81\nallow-origin = "https://example.org"\nno-metrics = false\n')
    settings = read(f"--config {file}", {"LLAMA_GATEWAY_TEMPERATURE": "0.2", "LLAMA_GATEWAY_TOP_K": ""})
    assert (settings.port, settings.allow_origin, settings.no_metrics) == (81, ("https://example.org",), False)
    assert (settings.temperature, settings.top_k, settings.top_p) == (0.2, 40, 0.95)


@pytest.mark.parametrize(
    ("variable", "line"),
    [("THREADS", "-t -1"), ("N_PARALLEL", "-np -1"), ("CACHE_RAM", "-cram -1"), ("THREADS", "-t 8 -t -1")],
)
def test_a_flag_for_the_default_wins_over_a_variable(variable: str, line: str) -> None:
    assert translate(line.split(), {f"LLAMA_ARG_{variable}": "4"}).arguments == ["serve"]


@pytest.mark.parametrize(
    ("line", "variable", "name", "value"),
    [
        ("--no-context-shift", "CONTEXT_SHIFT", "context_shift", False),
        ("-kvu -no-kvu", "KV_UNIFIED", "kv_unified", False),
        ("--no-kv-unified -kvu", "KV_UNIFIED", "kv_unified", True),
        ("--slots --no-slots", "CONTEXT_SHIFT", "no_slots", True),
        ("--no-slots --slots", "CONTEXT_SHIFT", "no_slots", False),
    ],
)
def test_of_opposite_switches_the_last_one_counts(line: str, variable: str, name: str, value: bool) -> None:
    assert getattr(read(line, {f"LLAMA_ARG_{variable}": "on"}), name) is value


@pytest.mark.parametrize(("fit", "meant"), [("1", "on"), ("disabled", "off"), ("on", "on")])
def test_values_of_variables_are_spelled_as_llama_server_spells_them(fit: str, meant: str) -> None:
    settings = read("", {"LLAMA_ARG_FIT": fit, "LLAMA_ARG_LOAD_MODE": "dio"})
    assert (settings.fit, settings.load_mode) == (meant, "direct-io")
    assert read("--load-mode mmap").load_mode == "mmap"


def test_each_variable_stands_for_a_flag() -> None:
    assert set(variables().values()) <= set(FLAGS)
    assert set(FLAGS) >= VALUELESS


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("-hf user/repo:Q4_K_M", "hf:user/repo:Q4_K_M"),
        ("--hf-repo user/repo:Q4_K_M --hf-file a.gguf", "hf:user/repo/a.gguf"),
        ("-m a.gguf -hf user/repo", "hf:user/repo"),
        ("-m a.gguf -m b.gguf", "b.gguf"),
    ],
)
def test_one_model_is_chosen_as_llama_server_chooses_it(line: str, model: str) -> None:
    assert translate(line.split(), {}).arguments == ["serve", f"--model={model}"]


@pytest.mark.parametrize(
    ("line", "argument"),
    [
        ("--host /tmp/x.sock --port 81", ["--unix-socket=/tmp/x.sock"]),
        ("--host /tmp/x.sock --host ::1 --port 81", ["--host=::1", "--port=81"]),
        ("--control-vector-layer-range 3 9", ["--control-vector-layer-range=3-9"]),
        ("--sleep-idle-seconds 5", ["--idle-unload=5", "--load-at-start"]),
        ("--sleep-idle-seconds -1 -cram -1 -np -1", []),
        ("--log-disable", ["--log-level=error"]),
        ("-cram 5", ["--cache-ram=5"]),
        ("--chat-template chatml", ["--chat-template=chatml"]),
        ("--reasoning off", ['--chat-template-kwargs={"enable_thinking":false}']),
        ("--chat-template-kwargs {}", ['--chat-template-kwargs={"enable_thinking":true}']),
        ('--chat-template-kwargs {"a":1} -rea on', ['--chat-template-kwargs={"enable_thinking":true,"a":1}']),
        ("--reasoning-effort low", ['--chat-template-kwargs={"enable_thinking":true,"reasoning_effort":"low"}']),
        ("--reasoning-effort default", []),
        ("--reasoning-budget 0", ["--reasoning-budget", "0"]),
        ("--reranking", ["--pooling=rank"]),
    ],
)
def test_values_that_mean_something_else_are_converted(line: str, argument: list[str]) -> None:
    assert translate(line.split(), {}).arguments == ["serve", *argument]


def test_flags_of_this_server_may_stand_beside_them() -> None:
    assert read("--queue-limit 7 --strict-fields --no-kv-unified").queue_limit == 7


def test_requests_are_sampled_as_llama_server_samples_them() -> None:
    defaults = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "dry_penalty_last_n": 64}
    assert (read("").chosen_sampling, read("").other_sampling) == ({}, defaults)
    settings = read("--temp 0 --seed 42 --top_k 5 --samplers top-k;Temp")
    chosen = {"temperature": 0, "seed": 42, "top_k": 5, "samplers": ("top_k", "temperature")}
    others = {name: value for name, value in defaults.items() if name not in chosen}
    for own in (settings, settings.served[0].settings):
        assert (own.chosen_sampling, own.other_sampling) == (chosen, others)


def test_a_unix_socket_takes_the_place_of_the_port() -> None:
    for line, environment in (("--host /run/x.sock", {}), ("", {"LLAMA_GATEWAY_UNIX_SOCKET": "/run/x.sock"})):
        settings = read(line, environment)
        assert (settings.unix_socket, settings.listens_on_port) == (Path("/run/x.sock"), False)
    assert read("--host ::1", {"LLAMA_ARG_HOST": "/run/x.sock"}).unix_socket is None


def test_own_variables_win_over_the_defaults_of_llama_server() -> None:
    assert read("", {"LLAMA_GATEWAY_PORT": "9"}).port == 9


def test_a_file_of_keys_that_cannot_be_used_is_no_server_without_keys(tmp_path: Path) -> None:
    with pytest.raises(LineError, match="the file cannot be read"):
        read(f"--api-key-file {tmp_path / 'missing'}")
    (tmp_path / "commas").write_text("first\nsecond,2\n")
    with pytest.raises(LineError, match="a key has a comma"):
        read(f"--api-key-file {tmp_path / 'commas'}")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(SettingsError, match="there is no key"):
        read(f"--api-key-file {tmp_path / 'empty'}")


def test_only_serve_like_llama_server_is_translated() -> None:
    other = ["serve", "--port", "1"]
    assert command_line(other, {}) == Translated(other, {})
    translated = command_line(["serve", "--like", "llama-server", "--port", "1"], {})
    assert translated.defaults["port"]
    assert command_line(["serve", "--like=llama-server", "--port", "1"], {}) == translated
    for line in (["serve", "--port", "1", "--like", "llama-server"], ["serve", "--like", "ollama"]):
        with pytest.raises(SettingsError, match="the only one, and it comes first: serve --like llama-server"):
            read_settings(line, {})


@pytest.mark.parametrize("flag", sorted(LEAVING))
def test_help_and_version_are_printed(flag: str) -> None:
    with pytest.raises(SystemExit):
        read(f"--port 1 {flag}")


def test_defaults_of_llama_server_can_be_ended_by_flags() -> None:
    assert (read("").no_metrics, read("--metrics").no_metrics) == (True, False)
    assert (read("").lora_apply, read("--lora-init-without-apply").lora_apply) == (True, False)


def test_all_names_of_a_model_are_its_names() -> None:
    [served] = read("--alias two,one").served
    assert (served.name, served.aliases) == ("one", ("two",))


def test_a_chat_template_without_jinja_is_a_text() -> None:
    assert translate(["--chat-template", "Hello, you"], {}).arguments == ["serve", "--chat-template={##}Hello, you"]
