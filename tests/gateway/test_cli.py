"""Settings: the precedence of their sources, and the one-line message for each wrong value."""

import os
from pathlib import Path

import pytest
from pydantic import BaseModel

from engine import EngineConfig, embedded_model
from gateway.cli import SettingsError, read_settings
from gateway.flags import TABLES, flag_fields
from gateway.hub.reference import HubReference
from gateway.settings import Settings
from tests.gateway.settings.reading import complaint, read


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF" + bytes(60))
    return path


@pytest.fixture
def config(tmp_path: Path, model: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(f"model = '{model}'\nport = 1001\nslots = 3\nqueue-limit = 7\nstep_target_ms = 12.5\n")
    return path


def test_every_setting_but_the_tables_is_a_flag() -> None:
    assert flag_fields().keys() == Settings.model_fields.keys() - {TABLES}


def test_defaults_of_the_engine_are_the_engines_own(model: Path) -> None:
    settings = read("--model", model)
    assert settings.engine_config() == EngineConfig(model=str(model), log_name="tiny")
    assert (settings.host, settings.port, settings.async_backend) == ("127.0.0.1", 8000, "trio")
    assert settings.served_name == "tiny"


def test_flags_win_then_environment_then_file(config: Path) -> None:
    environment = {"LLAMA_GATEWAY_PORT": "1002", "LLAMA_GATEWAY_SLOTS": "4"}
    settings = read("--config", config, "--port", "1003", **environment)
    assert (settings.port, settings.slots, settings.queue_limit) == (1003, 4, 7)
    assert settings.step_target_ms == 12.5


def test_the_file_can_be_named_by_the_environment(config: Path) -> None:
    assert read(LLAMA_GATEWAY_CONFIG=str(config)).port == 1001


def test_an_empty_variable_is_no_value(config: Path) -> None:
    environment = {"LLAMA_GATEWAY_CONFIG": str(config), "LLAMA_GATEWAY_PORT": ""}
    assert read(**environment).port == 1001


VALUES = {
    "offline": "true",
    "allow_pull": "true",
    "alias": "mine",
    "parse_special": "true",
    "lora_apply": "true",
    "chat_template_kwargs": "{}",
    "answers_like": "llama-server",
    "host": "::1",
    "port": "0",
    "unix_socket": "/run/gateway.sock",
    "tls_certificate": "server.pem",
    "tls_key": "server.key",
    "tls_client_ca": "clients.pem",
    "metrics_port": "0",
    "metrics_host": "::1",
    "allow_origin": "https://a.example",
    "prefix_secret": "sixteen letters..",
    "api_key": "sk-a",
    "open_path": "/metrics",
    "control_vector_layer_range": "2-5",
    "slots": "2",
    "context": "512",
    "threads": "1",
    "threads_batch": "2",
    "gpu_layers": "0",
    "device": "CUDA0",
    "split_mode": "row",
    "tensor_split": "3,1",
    "main_gpu": "0",
    "override_tensor": "output=CPU",
    "cpu_moe": "true",
    "n_cpu_moe": "0",
    "fit": "off",
    "load_mode": "none",
    "numa": "numactl",
    "cpus": "0",
    "engine_priority": "low",
    "rope_scaling": "yarn",
    "rope_freq_base": "10000",
    "rope_freq_scale": "0.5",
    "yarn_orig_ctx": "512",
    "yarn_ext_factor": "0",
    "yarn_attn_factor": "1.5",
    "yarn_beta_fast": "32",
    "yarn_beta_slow": "1",
    "repack": "on",
    "flash_attention": "off",
    "backend_sampling": "on",
    "kv_type_k": "q8_0",
    "kv_type_v": "bf16",
    "step_target_ms": "50",
    "speculation": "off",
    "context_shift": "true",
    "pooling": "last",
    "prefix_store": "1000",
    "prefix_dir": "/prefixes",
    "prefix_dir_bytes": "2000",
    "partition_cache": "true",
    "queue_limit": "9",
    "keep_loaded": "true",
    "load_at_start": "true",
    "tags": "chat,small",
    "idle_unload": "60",
    "models_memory": "1000000",
    "models_gpu_memory": "0",
    "max_tokens": "99",
    "temperature": "0.5",
    "top_k": "3",
    "top_p": "0.9",
    "min_p": "0.1",
    "typical_p": "0.8",
    "top_n_sigma": "2",
    "seed": "7",
    "frequency_penalty": "0.1",
    "presence_penalty": "0.2",
    "repeat_penalty": "1.1",
    "repeat_last_n": "32",
    "dry_multiplier": "0.8",
    "dry_base": "1.5",
    "dry_allowed_length": "3",
    "dry_penalty_last_n": "100",
    "dry_sequence_breakers": "none",
    "xtc_probability": "0.3",
    "xtc_threshold": "0.2",
    "dynatemp_range": "0.4",
    "dynatemp_exponent": "2",
    "mirostat": "2",
    "mirostat_tau": "4",
    "mirostat_eta": "0.2",
    "samplers": "top_k;temperature",
    "logit_bias": "5+1.5,6-1",
    "ignore_eos": "true",
    "stop": "END, end",
    "n_keep": "-1",
    "reasoning_budget": "0",
    "reasoning_budget_message": "Enough, now.",
    "request_timeout": "1.5",
    "queue_timeout": "0.5",
    "client_patience": "3",
    "stream_interval_ms": "20",
    "body_limit": "1000",
    "body_budget": "2000",
    "strict_fields": "true",
    "no_slots": "true",
    "no_metrics": "true",
    "resumable_streams": "5",
    "props": "true",
    "stored_responses": "5",
    "stored_bytes": "5000",
    "background_limit": "5",
    "ray": "true",
    "replicas": "2",
    "max_replicas": "3",
    "grace": "0",
    "async_backend": "asyncio",
    "log_level": "debug",
    "log_format": "json",
    "access_log": "off",
    "log_content": "true",
    "traces": "on",
}
"""A value of each setting that is not a file."""


def test_every_setting_can_come_from_each_source(tmp_path: Path, model: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages[0].content }}")
    files = {
        "model": str(model),
        "chat_template": str(template),
        "default_chat_template": "chatml",
        "embedding_model": str(model),
        "models_dir": str(tmp_path),
        "slot_save_path": str(tmp_path),
        "lora": f"fr={model}:0.5",
        "control_vector": str(model),
    }
    stores = {"keys": str(tmp_path / "keys.db"), "usage": str(tmp_path / "usage.db")}
    stores["responses_store"] = "postgresql://localhost/texts"
    values = {**VALUES, **files, **stores}
    assert values.keys() == flag_fields().keys() - {"kv_unified"}  # which --context-shift excludes
    flags = [part for name, value in values.items() for part in ("--" + name.replace("_", "-"), value)]
    flags = [flag for flag in flags if flag != "true"]  # a switch has no value
    variables = {f"LLAMA_GATEWAY_{name.upper()}": value for name, value in values.items()}
    file = tmp_path / "all.toml"
    file.write_text("".join(f"{name.replace('_', '-')} = '{value}'\n" for name, value in values.items()))
    by_flags = read(*flags)
    assert by_flags == read(**variables) == read("--config", file)
    assert by_flags.engine_config().gpu_layers == 0
    assert by_flags.engine_config().speculation is False
    assert by_flags.engine_config().context_shift
    [embedder] = [model for model in by_flags.served if model.embeds_only]
    assert not by_flags.engine_config(embedder).context_shift
    assert by_flags.strict_fields
    assert by_flags.partition_cache
    assert by_flags.parse_special
    assert by_flags.engine_config().prefix_store == 1000
    assert by_flags.engine_config().prefix_dir == "/prefixes"
    assert by_flags.engine_config().prefix_dir_bytes == 2000
    assert by_flags.allow_origin == ("https://a.example",)
    assert by_flags.chat_template == "{{ messages[0].content }}"


def test_a_unix_socket_replaces_the_port_unless_a_host_or_port_is_given() -> None:
    assert read().listens_on_port
    unix = ("--unix-socket", "/run/gateway.sock")
    assert not read(*unix).listens_on_port
    assert read(*unix, "--port", "8000").listens_on_port
    assert read(*unix, LLAMA_GATEWAY_HOST="::1").listens_on_port


def test_api_keys_can_be_many(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text("api-key = ['a', 'b']\n")
    expected = ("a", "b")
    assert read("--api-key", "a", "--api-key", "b").api_key == expected
    assert read("--api-key", "a,b").api_key == expected
    assert read(LLAMA_GATEWAY_API_KEY="a, b").api_key == expected
    assert read(LLAMA_API_KEY="a,b").api_key == expected
    assert read(LLAMA_GATEWAY_API_KEY="a,b", LLAMA_API_KEY="c").api_key == expected
    assert read("--api-key", "a,b", LLAMA_API_KEY="c").api_key == expected
    assert read("--config", file).api_key == expected
    assert read(LLAMA_API_KEY="").api_key == ()


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("END", ("END",)),
        ("a, b", ("a, b",)),
        ("[END]", ("[END]",)),
        ('["a, b", "[END]"]', ("a, b", "[END]")),
        (' [ "a" ]', ("a",)),
    ],
)
def test_the_variable_of_a_repeatable_flag_has_one_text_or_a_json_array(text: str, stops: tuple[str, ...]) -> None:
    assert read(LLAMA_GATEWAY_STOP=text).stop == stops


def test_a_json_array_in_a_variable_is_never_shown() -> None:
    assert read(LLAMA_API_KEY='["a", "b"]').api_key == ("a", "b")
    shown = complaint(LLAMA_API_KEY='["sk-a"')
    assert shown == "LLAMA_API_KEY: begins as a JSON array of strings, but is not one"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("sk-right,sk-ünï", "a key may have only visible ASCII characters, and no space"),
        ("sk-a b", "a key may have only visible ASCII characters, and no space"),
        ("sk-\x07", "a key may have only visible ASCII characters, and no space"),
        (",", "there is no key"),
    ],
)
def test_a_wrong_api_key_is_not_shown(value: str, reason: str) -> None:
    assert complaint("--api-key", value) == f"--api-key: {reason}"
    assert complaint(LLAMA_API_KEY=value) == f"LLAMA_API_KEY: {reason}"
    assert complaint(LLAMA_GATEWAY_API_KEY=value) == f"LLAMA_GATEWAY_API_KEY: {reason}"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("postgresql://user:w%zzord@example.org/keys", "this is not a valid URL of a PostgreSQL database"),
        ("mysql://user:word@example.org/keys", "this is neither a file nor a URL that begins with postgresql://"),
        ("/no/such/folder/keys.db", "there is no such folder"),
    ],
)
def test_a_wrong_key_store_is_refused_without_its_password(place: str, reason: str) -> None:
    assert complaint("--keys", place) == f"--keys: {reason}"


def test_secrets_are_not_in_the_text_of_the_settings() -> None:
    place = "postgresql://user:word@example.org/keys"
    settings = read("--api-key", "sk-secret", "--keys", place)
    assert settings.keys == place
    assert "sk-secret" not in repr(settings) + str(settings)
    assert "word" not in repr(settings) + str(settings)


def test_an_open_path_begins_with_a_slash() -> None:
    assert read("--open-path", "/a,/b").open_path == ("/a", "/b")
    assert complaint("--open-path", "/a,b") == "--open-path '/a,b': 'b' does not begin with a slash"


def test_origins_can_be_many(tmp_path: Path) -> None:
    file = tmp_path / "origins.toml"
    file.write_text("allow-origin = ['https://a.example', 'https://b.example']\n")
    expected = ("https://a.example", "https://b.example")
    assert read("--allow-origin", expected[0], "--allow-origin", expected[1]).allow_origin == expected
    assert read(LLAMA_GATEWAY_ALLOW_ORIGIN=", ".join(expected)).allow_origin == expected
    assert read("--config", file).allow_origin == expected


SIZES = [name for name, field in Settings.model_fields.items() if field.title == "BYTES"]


@pytest.mark.parametrize(
    ("text", "size"), [("3", 3), ("2k", 2048), ("3MiB", 3 * 2**20), ("5Gi", 5 * 2**30), ("1gb", 2**30), ("1T", 2**40)]
)
def test_sizes_may_have_units(text: str, size: int) -> None:
    assert read("--models-memory", text).models_memory == size


def test_all_sizes_may_have_units_wherever_they_are_set(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "sizes.toml"
    file.write_text(
        f"prefix-dir = '{tmp_path}'\n"
        + "".join(f"{name} = '2K'\n" for name in SIZES)
        + f"[models.a]\nfile = '{model}'\nprefix-store = '1M'"
    )
    flags = read("--prefix-dir", tmp_path, *(p for name in SIZES for p in (f"--{name.replace('_', '-')}", "2K")))
    variables = read("--prefix-dir", tmp_path, **{f"LLAMA_GATEWAY_{name.upper()}": "2K" for name in SIZES})
    table = read("--config", file)
    assert {getattr(settings, name) for settings in (flags, variables, table) for name in SIZES} == {2048}
    assert table.served[0].settings.prefix_store == 2**20


@pytest.mark.parametrize(
    ("flag", "value", "reason"),
    [
        ("--port", "70000", "should be less than or equal to 65535"),
        ("--port", "http", "should be a whole number"),
        ("--models-memory", "1.5G", "should be a whole number of bytes, or a size such as 512M or 8G"),
        ("--body-limit", "2G", "should be less than or equal to 2147483647"),
        ("--body-limit", "8P", "should be a whole number of bytes, or a size such as 512M or 8G"),
        ("--max-tokens", "many", "should be a whole number of tokens"),
        ("--step-target-ms", "short", "should be a number of milliseconds"),
        ("--port", "80_80", "should be a number without underscores"),
        ("--threads", "1_0", "should be a number without underscores"),
        ("--request-timeout", "1_0.5", "should be a number without underscores"),
        ("--slots", "0", "should be greater than or equal to 1"),
        ("--slots", "1.5", "should be a whole number"),
        ("--prefix-store", "-1", "should be greater than or equal to 0"),
        ("--gpu-layers", "-2", "should be greater than or equal to -1"),
        ("--step-target-ms", "nan", "should be a finite number"),
        ("--step-target-ms", "0", "should be greater than 0"),
        ("--request-timeout", "inf", "should be a finite number"),
        ("--request-timeout", "soon", "should be a number of seconds"),
        ("--async-backend", "curio", "should be 'trio' or 'asyncio'"),
        ("--log-format", "xml", "should be 'text' or 'json'"),
        ("--log-level", "loud", "should be 'debug'"),
        ("--host", "", "should have at least 1 character"),
        ("--host", "127.0.0.1,", "has an empty address"),
    ],
)
def test_a_wrong_value_names_its_flag_variable_or_key(tmp_path: Path, flag: str, value: str, reason: str) -> None:
    variable = "LLAMA_GATEWAY_" + flag[2:].replace("-", "_").upper()
    file = tmp_path / "wrong.toml"
    file.write_text(f"{flag[2:]} = '{value}'\n")

    by_flag = complaint(flag, value)
    assert by_flag.startswith(f"{flag} {value!r}: {reason}")
    if value:
        assert complaint(**{variable: value}) == by_flag.replace(flag, variable, 1)
    by_key = complaint("--config", file)
    assert by_key == by_flag.replace(flag, f"{flag[2:]} in {file}", 1)


@pytest.mark.parametrize("origin", ["example.org", "https://example.org/page", "https://", "https://a b"])
def test_an_invalid_origin_is_refused(origin: str) -> None:
    text = complaint("--allow-origin", f"*,{origin}")
    assert text.endswith(f": {origin!r} is not an origin such as https://example.org, nor localhost or *")


@pytest.mark.parametrize(
    ("secret", "reason"),
    [("x" * 15, "at least 16 characters"), ("x" * 65, "at most 64 bytes"), ("é" * 33, "at most 64 bytes")],
)
def test_a_secret_that_cannot_be_the_key_of_a_hash_is_refused(secret: str, reason: str) -> None:
    assert complaint("--prefix-secret", secret) == f"--prefix-secret: should have {reason}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("port = true", "port in {file} 'True': should be a whole number"),
        ("port = [1]", "port in {file} ['1']: should be a valid integer"),
        ("slots = 2.5", "slots in {file} '2.5': should be a whole number"),
        ("slotz = 2", "unknown key 'slotz' in {file}; did you mean slots?"),
        ("max_tokns = 2", "unknown key 'max_tokns' in {file}; did you mean max-tokens?"),
        ("max-model-len = 2", "unknown key 'max-model-len' in {file}; did you mean context?"),
        (
            "default-chat-template-kwargs = '{}'",
            "unknown key 'default-chat-template-kwargs' in {file}; did you mean chat-template-kwargs?",
        ),
        ("[modles.a]\nfile = 'a.gguf'", "unknown key 'modles' in {file}; did you mean models?"),
        ("prot = 1", "unknown key 'prot' in {file}; did you mean port?"),
        ("keep-load = true", "unknown key 'keep-load' in {file}; did you mean keep-loaded?"),
        ("gpu_layers = 1\ngpu-layers = 2", "--config {file!r}: gpu_layers and gpu-layers are the same setting"),
        ("config = 'other.toml'", "unknown key 'config' in {file}"),
        ("[alias]\nname = 'x'", "alias in {file}: should be a value in quotes, and no table"),
        (
            "[model.a]\nfile = 'a.gguf'",
            "model in {file}: should be a value in quotes, and no table; did you mean models?",
        ),
        ("chat-template-kwargs = {a = 1}", "chat-template-kwargs in {file}: should be a value in quotes"),
        ("[server]\nport = 1", "unknown key 'server' in {file}"),
        ("port 8000", "--config {file!r}: not a TOML file: "),
    ],
)
def test_an_invalid_settings_file_is_one_line(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(line + "\n")
    text = complaint("--config", file)
    assert text.startswith(reason.format(file=str(file)))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("n-gpu-layers", "gpu-layers"),
        ("ctx_size", "context"),
        ("mlock", "load-mode"),
        ("no-mmap", "load-mode"),
        ("direct-io", "load-mode"),
        ("log-jsonl", "log-format"),
        ("flash-attn", "flash-attention"),
    ],
)
def test_a_key_that_is_a_flag_of_another_program_is_answered_by_the_setting(
    tmp_path: Path, key: str, meant: str
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(f"{key} = '1'\n")
    assert complaint("--config", file) == f"unknown key {key!r} in {file}; did you mean {meant}?"


def test_a_settings_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "windows.toml"
    file.write_text("port = 1", encoding="utf-8-sig")
    assert read("--config", file).port == 1


def test_a_settings_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "binary.toml"
    file.write_bytes(b"\xff\xfe\x00")
    assert complaint("--config", file).startswith(f"--config {str(file)!r}: not a TOML file")


def test_a_missing_settings_file_is_refused(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.toml")
    assert complaint("--config", missing) == f"--config {missing!r}: No such file or directory"
    assert complaint(LLAMA_GATEWAY_CONFIG=missing) == f"LLAMA_GATEWAY_CONFIG {missing!r}: No such file or directory"


def test_unknown_and_incomplete_flags_are_refused() -> None:
    assert complaint("--prot", "1") == "unrecognized arguments: --prot; did you mean --port?"
    assert complaint("--por", "1") == "unrecognized arguments: --por; did you mean --port?"
    unlike = ("--nonsense", "--slot=4")
    assert complaint(*unlike) == "unrecognized arguments: --nonsense --slot; did you mean --slots?"
    assert complaint("--port") == "argument --port: expected one argument"


def test_an_unknown_flag_with_a_dot_is_named() -> None:
    flag = "--structured-outputs-config.backend"  # vLLM sets parts of JSON values so
    assert complaint(flag, "x") == f"unrecognized arguments: {flag}"


def test_a_value_without_a_flag_is_answered_for_models_and_for_names() -> None:
    for line in (("user/model",), ("--served-model-name", "one", "two")):
        assert complaint(*line).endswith("a model is --model FILE, and several names have commas between them")


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [("--context-size", "--context"), ("--threads-batch-count", "--threads-batch"), ("--keys-file", "--keys")],
)
def test_a_flag_with_a_further_word_is_recognized(unknown: str, meant: str) -> None:
    assert complaint(unknown, "5") == f"unrecognized arguments: {unknown}; did you mean {meant}?"


def test_a_flag_at_the_wrong_place_does_not_mean_itself() -> None:
    assert complaint("--version") == "unrecognized arguments: --version"


def test_an_address_for_metrics_without_their_port_is_refused() -> None:
    refused = "--metrics-host needs --metrics-port: without it, /metrics is on --port"
    assert complaint("--metrics-host", "::1") == refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["serve", "--api-keyy", "sk-secret"], "--api-keyy"),
        (["serve", "--api-keyy=sk-secret"], "--api-keyy"),
        (["serve", "-k", "sk-secret"], "-k"),
        (["serve", "sk-secret"], "unrecognized arguments: a value stands without its flag; a model is --model FILE"),
        (["serve", "--api", "-sk-Secret_1"], "argument -s: should be an integer"),
        (["--api-key", "sk-secret", "serve"], "a command comes first"),
        (["serve", "--log-content=sk-secret"], "argument --log-content: ignored explicit argument"),
    ],
)
def test_no_mistyped_flag_shows_what_may_be_a_key(arguments: list[str], named: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(arguments, {})
    assert named in str(caught.value)
    assert "secret" not in str(caught.value).lower()


def test_a_missing_or_unknown_command_is_refused() -> None:
    with pytest.raises(SettingsError, match="a command comes first: llama-gateway serve"):
        read_settings([], {})
    with pytest.raises(SettingsError, match=r"argument command: invalid choice: 'server'.* \(choose from"):
        read_settings(["server"], {})
    with pytest.raises(SettingsError, match=r"argument command: invalid choice \(choose from"):
        read_settings(["sk-secret"], {})


def test_a_plain_word_for_a_flag_without_a_value_is_repeated() -> None:
    assert complaint("--parse-special=yes") == "argument --parse-special: ignored explicit argument 'yes'"


def test_a_model_path_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.gguf")
    Path(path).write_bytes(b"GGUF" + bytes(60))
    assert complaint("--model", path) == f"--model {path!r}: the path is not UTF-8"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("x" * 300, "the file cannot be read: File name too long"),
        ("~nosuchuser/x.gguf", "there is no such home directory"),
    ],
)
def test_an_impossible_model_path_is_refused(path: str, reason: str) -> None:
    assert complaint("--model", path) == f"--model {path!r}: {reason}"


@pytest.mark.parametrize("flag", ["--model", "--embedding-model", "--lora", "--control-vector"])
def test_a_device_in_the_place_of_a_file_is_refused(flag: str) -> None:
    refused = complaint(flag, os.devnull)
    assert refused.startswith(f"{flag} {os.devnull!r}: ")
    assert refused.endswith("not a regular file")


@pytest.mark.parametrize("flag", ["--config", "--lora", "--control-vector"])
def test_a_home_directory_that_does_not_exist_is_refused(flag: str) -> None:
    path = "~nosuchuser/x"
    assert complaint(flag, path) == f"{flag} {path!r}: there is no such home directory"


@pytest.mark.parametrize("flag", ["--unix-socket", "--tls-certificate", "--tls-key", "--tls-client-ca"])
def test_a_path_may_begin_at_home(flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    settings = read(flag, "~/file")
    assert getattr(settings, flag[2:].replace("-", "_")) == Path("/home/someone/file")
    assert complaint(flag, "~nosuchuser/x").endswith("there is no such home directory")


@pytest.mark.parametrize("flag", ["--prefix-dir", "--slot-save-path", "--models-dir", "--unix-socket", "--tls-key"])
def test_an_empty_path_is_not_the_working_folder(flag: str, tmp_path: Path) -> None:
    assert complaint(flag, "") == f"{flag} '': is empty"
    file = tmp_path / "gateway.toml"
    file.write_text(f"{flag[2:]} = ''\n")
    assert complaint("--config", file) == f"{flag[2:]} in {file} '': is empty"


def test_a_name_may_have_underscores() -> None:
    assert read("--alias", "1_0").alias == "1_0"


@pytest.mark.parametrize("alias", ["", " ", ",", " , "])
def test_an_alias_without_a_name_is_refused(alias: str) -> None:
    assert complaint("--alias", alias) == f"--alias {alias!r}: has no name"


@pytest.mark.parametrize("flag", ["--api-key", "--model", "--lora", "-m"])
def test_two_hyphens_are_no_value(flag: str) -> None:
    assert complaint(f"{flag}=--") == f"argument {flag}: -- cannot be its value"


def test_the_embedded_model_is_served_as_tiny_by_default() -> None:
    settings = read()
    assert settings.model == embedded_model()
    assert settings.served_name == "tiny"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there is no such file"),
        (b"", "this is not a GGUF file"),
        (b"PK\x03\x04" + bytes(60), "this is not a GGUF file"),
        (b"GGUF\x03\x00", "this GGUF file is truncated"),
    ],
)
def test_a_file_that_is_not_a_model_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    assert complaint("--model", path) == f"--model {str(path)!r}: {reason}"


@pytest.mark.parametrize("place", ["no-one/model-2", "no-one/model:Q4_K_M", "x=no-one/model"])
def test_a_missing_file_that_may_be_a_model_of_the_hub_is_named_as_such(place: str) -> None:
    named = f"a model of the Hugging Face hub is written hf:{place.removeprefix('x=')}"
    assert complaint("--model", place) == f"--model {place!r}: there is no such file; {named}"


@pytest.mark.parametrize("host", ["hf.co", "huggingface.co"])
def test_a_model_of_the_hub_as_ollamas_clients_name_it_is_answered_with_its_name_here(host: str) -> None:
    named = "a model of the Hugging Face hub is written hf:no-one/model:Q4_K_M"
    place = f"{host}/no-one/model:Q4_K_M"
    assert complaint("--model", place) == f"--model {place!r}: there is no such file; {named}"


def test_a_missing_file_that_may_be_a_model_of_ollama_is_answered_with_the_form_of_the_hub() -> None:
    named = "a model of the Hugging Face hub is written hf:USER/REPO:QUANT"
    assert complaint("--model", "qwen3:0.6b") == f"--model 'qwen3:0.6b': there is no such file; {named}"


def test_a_url_is_no_model() -> None:
    url = "https://huggingface.co/someone/model/resolve/main/model.gguf"
    reason = "a URL is no file; a model of the Hugging Face hub is written hf:USER/REPO:QUANT"
    assert complaint("--model", url) == f"--model {url!r}: {reason}"


def test_a_flag_takes_back_the_stream_interval_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("stream-interval-ms = 20\n")
    assert read("--config", file, "--stream-interval-ms", "0").stream_interval_ms == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there is no such file; names of templates are chatml, command-r, llama3, phi3, zephyr"),
        (b"\xff", "the file is not UTF-8"),
        (b"Hello\n{% fi %}", "this is no Jinja template: line 2: Encountered unknown tag 'fi'."),
    ],
)
def test_an_invalid_chat_template_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "chat.jinja"
    if content is not None:
        path.write_bytes(content)
    arguments = ("--chat-template", str(path))
    assert complaint(*arguments) == f"--chat-template {str(path)!r}: {reason}"


def test_a_folder_as_a_model_is_refused(tmp_path: Path) -> None:
    refused = f"--model {str(tmp_path)!r}: this is a folder; --models-dir serves the models in one"
    assert complaint("--model", tmp_path) == refused


def test_a_path_that_cannot_be_examined_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert ": there is no such file; " in complaint("--model", f"models/{'x' * 300}")


def test_settings_are_immutable() -> None:
    settings = read()
    assert isinstance(settings, BaseModel)
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["--version"]])
def test_help_and_version_are_printed_with_exit_code_0(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        read_settings(arguments, {})
    assert caught.value.code == 0
    assert "llama-gateway" in capsys.readouterr().out


def test_help_lists_every_flag_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--help")
    text = capsys.readouterr().out
    for name in flag_fields():
        assert "--" + name.replace("_", "-") in text
    assert "(default: 8000)" in text
    assert "--async-backend trio|asyncio" in text


def test_an_embedding_model_has_an_engine_of_its_own(model: Path) -> None:
    settings = read("--embedding-model", model, "--slots", "4", "--context", "64")
    embeds = settings.served[-1]
    config = settings.engine_config(embeds)
    assert (config.model, config.slots, config.context, embeds.embeds_only) == (str(model), 1, None, True)
    assert len(read().served) == 1


def test_an_embedding_model_may_be_one_of_the_hub() -> None:
    settings = read("--embedding-model", "hf:user/embed-GGUF:Q8_0")
    embeds = settings.served[-1]
    assert (embeds.name, embeds.embeds_only) == ("embed-GGUF", True)
    assert settings.engine_config(embeds).model == "hf:user/embed-GGUF:Q8_0"
    assert complaint("--embedding-model", "hf:user").startswith("--embedding-model 'hf:user': should be hf:user/repo")


def test_an_embedding_model_must_be_a_model(tmp_path: Path) -> None:
    missing = tmp_path / "missing.gguf"
    assert complaint("--embedding-model", missing) == f"--embedding-model {str(missing)!r}: there is no such file"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("/no/such/folder/usage.db", "there is no such folder"),
        ("mysql://example.org/usage", "this is neither a file nor a URL that begins with postgresql://"),
    ],
)
def test_the_usage_store_must_be_a_file_or_a_url_of_postgresql(place: str, reason: str) -> None:
    assert complaint("--usage", place).endswith(f": {reason}")


def test_responses_are_shared_in_postgresql_only(tmp_path: Path) -> None:
    assert read().responses_store is None
    place = "postgresql://user:word@example.org/texts"
    settings = read("--responses-store", place)
    assert (settings.responses_store, "word" in repr(settings)) == (place, False)
    complained = complaint("--responses-store", str(tmp_path / "texts.db"))
    assert complained.endswith(": this is no URL that begins with postgresql://")


def test_a_model_of_the_hub_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read("--model", "hf:someone/some-GGUF:Q8_0")
    assert settings.model == HubReference("someone/some-GGUF", "Q8_0")
    assert settings.served_name == "some-GGUF"
    for model in ("hf:some-GGUF", "hf:someone/some/../../etc"):
        reason = "should be hf:user/repo, hf:user/repo:quant or hf:user/repo/file.gguf"
        assert complaint("--model", model) == f"--model {model!r}: {reason}"
    monkeypatch.setattr("gateway.settings.values.find_spec", lambda _name: None)
    reason = 'models from the hub need its package: pip install "llama-gateway[hub]"'
    assert complaint("--model", "hf:someone/some-GGUF") == f"--model 'hf:someone/some-GGUF': {reason}"
