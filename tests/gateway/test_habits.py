"""Flags of llama-server: each is understood with its meaning there, or answered by what to use instead.

So are the usual flags of vLLM and SGLang.
"""

import re
from pathlib import Path

import pytest

from engine import EngineConfig, embedded_model
from gateway.apis.llama_server.completion.samplers import read_samplers
from gateway.cli import SettingsError, read_settings
from gateway.habits import ALIASES, CONVERTED, SWITCHES
from gateway.like import vllm_flags
from gateway.like.llama_server_flags import ALWAYS, ANSWERS
from gateway.settings import Settings
from tests.gateway.settings.reading import complaint, read

FLAGS = Path(__file__).with_name("llama_server_flags.txt").read_text(encoding="utf-8").split()
"""All spellings of llama-server's flags, from llama.cpp's `common/arg.cpp` as of llama-cpp-python 0.3.36."""
OWN = {"--" + name.replace("_", "-") for name in Settings.model_fields} | {"-h", "--help", "--version"}
TOGETHER = {"-fa", "--flash-attn", "-c", "--ctx-size"}
"""Flags that have tests of their own below."""
FEATURES = {
    *("--context-shift", "--models-dir", "--offline"),
    *("--lora", "--control-vector", "--control-vector-layer-range"),
}
"""Flags of features that have the same names wherever they exist."""


def test_letters_of_samplers_are_those_of_requests() -> None:
    letters = "edskypmxti"
    assert read("--sampler-seq", letters).samplers == tuple(read_samplers(letters))


def test_every_flag_of_llama_server_is_understood_or_answered() -> None:
    understood = {flag for flags in (*ALIASES.values(), *CONVERTED, *SWITCHES) for flag in flags}
    answered = set(ANSWERS)
    known = OWN | TOGETHER | FEATURES | understood | answered | set(ALWAYS)
    assert [flag for flag in FLAGS if flag not in known] == []
    assert not answered & (understood | OWN)


def test_only_flags_of_llama_server_are_answered() -> None:
    assert set(ANSWERS) | set(ALWAYS) <= set(FLAGS)


def test_aliases_and_conversions_are_of_settings_that_exist() -> None:
    settings = {*ALIASES, *(name for name, _ in CONVERTED.values()), *(name for name, _ in SWITCHES.values())}
    assert settings <= Settings.model_fields.keys()


@pytest.mark.parametrize(
    ("flag", "use"),
    [
        ("--grammar", "requests set this, by a field of the same purpose"),
        ("-md", "there are no draft models: --speculation drafts from a sequence's own text"),
        ("-ub", "the engine chooses the sizes of batches: --step-target-ms bounds their time"),
        ("-nkvo", "the KV cache of a layer is where the layer is: --gpu-layers"),
        ("--no-jinja", "chat templates are always Jinja"),
    ],
)
def test_other_flags_are_answered_in_one_line(flag: str, use: str) -> None:
    assert complaint(flag, "1") == f"{flag} is a flag of llama-server: {use}"


def test_a_value_behind_an_equals_sign_changes_no_answer() -> None:
    assert complaint("--grammar=x") == complaint("--grammar", "x")


@pytest.mark.parametrize(
    ("flag", "use"),
    [
        ("--gpu-memory-utilization", "the KV cache has --slots times --context tokens, by default as many as fit"),
        ("--max-num-seqs", "use --slots, each of which has --context tokens of the KV cache"),
        ("-tp", "all GPUs share the model; --split-mode tensor divides its tensors"),
        ("--mem-fraction-static", "the KV cache has --slots times --context tokens, by default as many as fit"),
    ],
)
def test_flags_of_vllm_and_sglang_are_answered_in_one_line(flag: str, use: str) -> None:
    assert complaint(flag, "1") == complaint(f"{flag}=1") == f"{flag} is a flag of vLLM or SGLang: {use}"


@pytest.mark.parametrize("flag", ["--gpu-memory-utilization", "--batch-size", "--otlp-traces-endpoint"])
def test_underscores_change_no_answer(flag: str) -> None:
    assert complaint(f"--{flag[2:].replace('-', '_')}", "1") == complaint(flag, "1")


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        ("--n_predict 5", "max_tokens", 5),
        ("--max_model_len=4k", "context", 4000),
        ("--ctx_size 4096", "context", 4096),
        ("--no_mmap", "load_mode", "none"),
        ("--log_jsonl", "log_format", "json"),
        ("--served_model_name a_b", "alias", "a_b"),
        ("--queue_limit=3", "queue_limit", 3),
        ("--stop=--a_b", "stop", ("--a_b",)),
    ],
)
def test_flags_that_are_understood_may_have_underscores(flags: str, name: str, value: object) -> None:
    assert getattr(read(*flags.split()), name) == value


def test_a_value_that_begins_as_a_flag_keeps_its_underscores() -> None:
    assert read("--stop", "--- end_of_turn ---").stop == ("--- end_of_turn ---",)


def test_errors_name_flags_with_hyphens_alone() -> None:
    refused = "argument -cram/--cache-ram: 'x' is not a size in MiB; --prefix-store takes bytes"
    assert complaint("--cache_ram", "x") == refused
    assert complaint("--max_tokns", "5") == "unrecognized arguments: --max-tokns; did you mean --max-tokens?"
    assert complaint("--api_key=--") == "argument --api-key: -- cannot be its value"


def test_switches_for_a_default_win_over_the_variable_of_the_opposite() -> None:
    opposites = {f"LLAMA_GATEWAY_{name}": "true" for name in ("CONTEXT_SHIFT", "NO_METRICS", "LORA_APPLY")}
    switches = ["--no-context-shift", "--metrics", "--lora-init-without-apply"]
    settings = read_settings(["serve", *switches], opposites)
    assert (settings.context_shift, settings.no_metrics, settings.lora_apply) == (False, False, False)
    assert read("--no-context-shift", "--context-shift").context_shift


def test_switches_for_what_is_always_done_may_have_underscores() -> None:
    assert read("--enable_prefix_caching", "--cont_batching") == read()


@pytest.mark.parametrize("length", ["--max-model-len", "--context-length"])
def test_flags_of_vllm_and_sglang_that_mean_the_same_are_understood(length: str) -> None:
    settings = read("--served-model-name", "mine", length, "4096", *vllm_flags.ALWAYS)
    assert (settings.alias, settings.context) == ("mine", 4096)


def test_answers_of_vllm_name_flags_that_exist() -> None:
    named = {word for use in vllm_flags.ANSWERS.values() for word in re.findall(r"--[a-z-]+", use)}
    assert named <= OWN
    assert not set(vllm_flags.ANSWERS) & {*OWN, *FLAGS}


def test_the_flags_of_a_usual_command_line_are_understood(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF" + bytes(60))
    line = f"-m {model} -a mine -np 2 -ngl 20 -t 4 -tb 8 -dev CUDA0 -sm row -ts 3/1 -ncmoe 3 -ot output=CPU -cb --jinja"
    settings = read(*line.split(), "--host", "::1", "--port", "8080", "--metrics")
    assert (settings.model, settings.alias, settings.slots, settings.gpu_layers) == (model, "mine", 2, 20)
    assert (settings.threads, settings.threads_batch) == (4, 8)
    assert (settings.device, settings.split_mode, settings.tensor_split) == (("CUDA0",), "row", (3, 1))
    assert (settings.n_cpu_moe, settings.override_tensor) == (3, ("output=CPU",))
    assert read("-cmoe").cpu_moe


VALUES = [
    ("-ngl auto", "gpu_layers", -1),
    ("-ngl all", "gpu_layers", 1000),
    ("--n-gpu-layers 7", "gpu_layers", 7),
    ("-fit 0", "fit", "off"),
    ("-fit enabled", "fit", "on"),
    ("-lm dio", "load_mode", "direct-io"),
    ("-lm mmap", "load_mode", "mmap"),
    ("-C f1", "cpus", (0, 4, 5, 6, 7)),
    ("-C 0x3", "cpus", (0, 1)),
    ("-Cr 2-4", "cpus", (2, 3, 4)),
    ("--prio -1", "engine_priority", "low"),
    ("--prio 3", "engine_priority", "realtime"),
    ("-cram 2", "prefix_store", 2 * 2**20),
    ("--max-model-len 4096", "context", 4096),
    ("--max-model-len 4k", "context", 4000),
    ("--max-model-len 4.1k", "context", 4100),
    ("--max-model-len 4K", "context", 4096),
    ("--max-model-len 1M", "context", 2**20),
    ("--max-model-len auto", "context", None),
    ("--max-model-len -1", "context", None),
    ("-n 100", "max_tokens", 100),
    ("-n -1", "max_tokens", None),
    ("--rope-scale 4", "rope_freq_scale", 0.25),
    ("--temp 0.5", "temperature", 0.5),
    ("-s 7", "seed", 7),
    ("--sampling-seq kt", "samplers", ("top_k", "temperature")),
    ("--reasoning-budget -1", "reasoning_budget", -1),
    ("--keep -1", "n_keep", -1),
    ("-l 5+1", "logit_bias", ("5+1",)),
    ("-r END", "stop", ("END",)),
    ("-lv 0", "log_level", "error"),
    ("-lv 1", "log_level", "error"),
    ("-lv 2", "log_level", "warning"),
    ("-lv 3", "log_level", "info"),
    ("-lv 5", "log_level", "debug"),
    ("-v", "log_level", "debug"),
    ("--log-jsonl", "log_format", "json"),
    ("-nr", "repack", "off"),
    ("-bs", "backend_sampling", "on"),
    ("-fa on", "flash_attention", "on"),
    ("-fa 0", "flash_attention", "off"),
    ("-fa -v", "flash_attention", "on"),
    ("--mlock", "load_mode", "mmap+mlock"),
    ("--no-mmap", "load_mode", "none"),
    ("--no-mmap --mlock", "load_mode", "mlock"),
    ("-c 4096", "context", 4096),
    ("-c 4096 -np 4", "context", 1024),
    ("-c 4096 --slots 4", "context", 1024),
    ("-c 0 -np 4", "context", None),
    ("-np -1", "slots", EngineConfig(model="").slots),
    ("--parallel 3", "slots", 3),
    ("-c 4096 -np -1", "context", 4096),
]


@pytest.mark.parametrize(("flags", "name", "value"), VALUES)
def test_a_value_of_another_form_is_converted(flags: str, name: str, value: object) -> None:
    assert getattr(read(*flags.split()), name) == value


@pytest.mark.parametrize("layers", [("3", "12"), ("3-12",)])
def test_layers_are_two_values_or_one(layers: tuple[str, ...]) -> None:
    settings = read("--control-vector", embedded_model(), "--control-vector-layer-range", *layers)
    assert settings.control_vector_layers == (3, 12)


TOKENS = " is not a number of tokens, such as 4096, 4k (4000) or 4K (4096)"
LAYERS = "should be the first and the last layer, such as 10 20"
WRONG = [
    ("-ngl x", "-ngl 'x': should be a whole number"),
    ("--n_gpu_layers=x", "--n-gpu-layers 'x': should be a whole number"),
    ("--gpu-layers x", "--gpu-layers 'x': should be a whole number"),
    ("--max-model-len 1g", "argument --max-model-len: '1g'" + TOKENS),
    ("--max-model-len 0.0001k", "argument --max-model-len: '0.0001k'" + TOKENS),
    ("--max-model-len -2", "argument --max-model-len: '-2'" + TOKENS),
    ("-c x -np 2", "-c 'x': should be a whole number of tokens"),
    ("-c 1 -np 2", "--context '0': should be greater than or equal to 1"),
    ("-C zz", "argument -C/--cpu-mask: 'zz' is not a hexadecimal mask; --cpus takes a list"),
    ("-C 0", "--cpus '': there is no CPU"),
    ("-cram -1", "argument -cram/--cache-ram: '-1' is not a size in MiB; --prefix-store takes bytes"),
    ("--prio 9", "--prio '9': should be 'low', 'normal', 'medium', 'high' or 'realtime'"),
    ("--rope-scale 0", "argument --rope-scale: '0' is not a factor; --rope-freq-scale takes 1 by it"),
    ("-lv x", "-lv 'x': should be 'debug', 'info', 'warning' or 'error'"),
    ("-hf a", "--model 'hf:a': should be hf:user/repo, hf:user/repo:quant or hf:user/repo/file.gguf"),
    ("--control-vector-layer-range 3 4 5", "--control-vector-layer-range '3 4 5': " + LAYERS),
    ("--control-vector-layer-range 3", "--control-vector-layer-range '3': " + LAYERS),
    ("-c 4 --context 4", "--context is given twice, once as a flag of llama-server"),
    ("--mlock --load-mode mmap", "--load-mode is given twice, once as a flag of llama-server"),
]


@pytest.mark.parametrize(("flags", "reason"), WRONG)
def test_a_wrong_value_is_one_line(flags: str, reason: str) -> None:
    assert complaint(*flags.split()) == reason


def test_flags_without_a_command_are_answered_by_the_command() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(["-m", "model.gguf"], {})
    assert str(caught.value) == "a command comes first: llama-gateway serve [flags]; --help lists all commands"


def test_a_file_and_a_model_of_the_hub_are_two_models_in_any_order(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF" + bytes(20))
    for flags in (("-m", str(file), "-hf", "user/b"), ("-hf", "user/b", "-m", str(file))):
        assert {model.name for model in read(*flags).served} == {"a", "b"}


def test_the_default_as_a_flag_comes_before_another_value_of_a_variable() -> None:
    environment = {"LLAMA_GATEWAY_MAX_TOKENS": "5", "LLAMA_GATEWAY_SLOTS": "3"}
    settings = read("-n", "-1", "-np", "-1", **environment)
    assert (settings.max_tokens, settings.slots) == (None, EngineConfig(model="").slots)
