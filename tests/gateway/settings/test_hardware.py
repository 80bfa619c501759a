"""Settings of the hardware: forms of their values, contradictions, and the engine's configuration."""

from pathlib import Path

import pytest

from engine.hardware import ALL_LAYERS, Hardware, RopeScaling
from tests.gateway.settings.reading import complaint, read


def test_without_flags_the_hardware_is_the_engines_default() -> None:
    config = read().engine_config()
    assert (config.hardware, config.rope) == (Hardware(), RopeScaling())


def test_each_flag_reaches_the_engine() -> None:
    settings = read(
        *("--device", "CUDA0,CUDA1", "--split-mode", "row", "--tensor-split", "3,1"),
        *("--override-tensor", r"\.ffn_up\.=CPU", "--n-cpu-moe", "4", "--fit", "off", "--load-mode", "mmap+mlock"),
        *("--numa", "numactl", "--cpus", "0-2,5", "--engine-priority", "low"),
    )
    assert settings.engine_config().hardware == Hardware(
        devices=("CUDA0", "CUDA1"),
        split_mode="row",
        tensor_split=(3.0, 1.0),
        override_tensor=((r"\.ffn_up\.", "CPU"),),
        cpu_moe=4,
        fit=False,
        load_mode="mmap+mlock",
        numa="numactl",
        cpus=(0, 1, 2, 5),
        priority="low",
    )
    assert read("--cpu-moe").hardware.cpu_moe == ALL_LAYERS
    assert read("--device", "none").hardware.devices == ()
    assert read("--split-mode", "none", "--main-gpu", "1").hardware == Hardware(split_mode="none", main_gpu=1)


def test_each_flag_of_the_positions_reaches_the_engine() -> None:
    settings = read(
        *("--rope-scaling", "yarn", "--rope-freq-base", "10000", "--rope-freq-scale", "0.25", "--yarn-orig-ctx", "64"),
        *("--yarn-ext-factor", "0", "--yarn-attn-factor", "1.5", "--yarn-beta-fast", "32", "--yarn-beta-slow", "1"),
    )
    assert settings.engine_config().rope == RopeScaling(
        type="yarn",
        freq_base=10_000,
        freq_scale=0.25,
        yarn_orig_ctx=64,
        yarn_ext_factor=0,
        yarn_attn_factor=1.5,
        yarn_beta_fast=32,
        yarn_beta_slow=1,
    )


def test_several_overrides_keep_their_order() -> None:
    first, second = (r"blk\.[0-9]{1,2}\.ffn_up", "CPU"), ("output", "CUDA0")
    assert read("--override-tensor", r"blk\.[0-9]{1,2}\.ffn_up=CPU,output=CUDA0").hardware.override_tensor == (
        first,
        second,
    )
    flags = ("--override-tensor", "output=CUDA0", "--override-tensor", r"blk\.[0-9]{1,2}\.ffn_up=CPU")
    assert read(*flags).hardware.override_tensor == (second, first)


@pytest.mark.parametrize(("text", "cpus"), [("3", (3,)), ("0-3", (0, 1, 2, 3)), (" 8, 0-1,1", (0, 1, 8))])
def test_lists_of_cpus(text: str, cpus: tuple[int, ...]) -> None:
    assert read("--cpus", text).cpus == cpus


WRONG = [
    ("cpus", "3-1", "3-1 is not a range of CPUs below 4096"),
    ("cpus", "0-99999999", "0-99999999 is not a range of CPUs below 4096"),
    ("cpus", "all", "should be a list of CPUs such as 0-3,8"),
    ("cpus", ",", "there is no CPU"),
    ("device", "none,CUDA0", "should be names of devices, separated by commas, or none"),
    ("device", "CUDA0,CUDA0", "a device is named twice"),
    ("tensor-split", "0,0", "should be shares of at least 0, of which one is larger"),
    ("tensor-split", "3,-1", "should be shares of at least 0, of which one is larger"),
    ("tensor-split", "a", "should be a number"),
    ("tensor-split", "1_0,1", "should be numbers without underscores"),
    ("override-tensor", "ffn_up", r"should be PATTERN=BUFFER such as \.ffn_.*_exps\.=CPU"),
    ("override-tensor", "a=CPU,b", r"should be PATTERN=BUFFER such as \.ffn_.*_exps\.=CPU"),
    (
        "override-tensor",
        "(=CPU",
        "the pattern '(' is no regular expression: missing ), unterminated subpattern at position 0",
    ),
    ("override-tensor", "(?i)up=CPU", "the pattern '(?i)up' has (?, which is not possible here"),
    ("override-tensor", "[[:digit:]]=CPU", "the pattern '[[:digit:]]' has [[:, which is not possible here"),
    ("rope-freq-scale", "0", "should be greater than 0"),
    ("rope-freq-base", "10_000", "should be a number without underscores"),
]


@pytest.mark.parametrize(("name", "value", "reason"), WRONG)
def test_a_wrong_value_is_one_line(name: str, value: str, reason: str) -> None:
    text = complaint(f"--{name}", value)
    assert text.startswith(f"--{name} ")
    assert text.endswith(f": {reason}")


CONTRADICTIONS = [
    ("--split-mode none --tensor-split 1,1", "--tensor-split has no effect with --split-mode none"),
    ("--main-gpu 1", "--main-gpu needs --split-mode none"),
    ("--cpu-moe --n-cpu-moe 2", "--n-cpu-moe has no effect with --cpu-moe"),
    ("--cpus 0 --numa isolate", "--numa isolate would override --cpus: choose --numa numactl"),
    ("--rope-scaling none --rope-freq-scale 0.5", "--rope-freq-scale has no effect with --rope-scaling none"),
    ("--yarn-orig-ctx 64", "--yarn-orig-ctx needs --rope-scaling yarn"),
    (
        "--rope-scaling yarn --yarn-attn-factor 1",
        "--yarn-attn-factor needs --yarn-ext-factor 0: otherwise llama.cpp computes it",
    ),
    (
        "--split-mode tensor --flash-attention off",
        "--split-mode tensor needs flash attention: leave out --flash-attention off",
    ),
]


@pytest.mark.parametrize(("flags", "reason"), CONTRADICTIONS)
def test_flags_that_exclude_each_other_are_one_line(flags: str, reason: str) -> None:
    assert complaint(*flags.split()) == reason


def test_overrides_and_positions_are_of_the_main_model_alone() -> None:
    flags = ("--override-tensor", "output=CPU", "--rope-freq-scale", "0.5", "--cpus", "0")
    model = str(read().model)
    settings = read(*flags, "--embedding-model", model)
    [embedder] = [model for model in settings.served if model.embeds_only]
    config = settings.engine_config(embedder)
    assert (config.hardware, config.rope) == (Hardware(cpus=(0,)), RopeScaling())


def test_the_file_may_have_lists(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        "cpus = [0, '2-3']\ndevice = ['CUDA0', 'CUDA1']\ntensor-split = [3, 0.5]\ncpu-moe = true\n"
        r"override-tensor = ['a{1,2}=CPU', 'b=CPU']"
    )
    hardware = read("--config", file).hardware
    assert (hardware.cpus, hardware.devices, hardware.tensor_split) == ((0, 2, 3), ("CUDA0", "CUDA1"), (3, 0.5))
    assert (hardware.override_tensor, hardware.cpu_moe) == ((("a{1,2}", "CPU"), ("b", "CPU")), ALL_LAYERS)
