"""The types of cells: those that llama.cpp refuses or dies of are refused before, in one line."""

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from engine.config import EngineConfig, KVType
from engine.core.kv.cell_changes import Shift
from engine.core.step import Chunk, Outcome, StepPlan
from engine.errors import LoadError
from engine.llama.attention import AUTO, FLASH, NO_FLASH, on_devices
from engine.llama.memory.cell_types import CELL_TYPES, check_cell_types, check_cuda, relative_size
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from tests.architectures.families import FAMILIES, Family, Parameters
from tests.architectures.models import write_family
from tests.engine.driver import running
from tests.repeat import thorough

QUANTISED = [name for name, kind in CELL_TYPES.items() if kind.block > 1]
MIXED = [("q8_0", "q4_0"), ("f16", "q8_0"), ("q5_1", "iq4_nl"), ("bf16", "f32")]
BUILD = "CUDA : ARCHS = 900 | FA_QUANTS = q4_0-q4_0,q8_0-q8_0,f16-f16,bf16-bf16 | CPU : AVX2 = 1 |"


def config(keys: KVType, values: KVType, **fields: Any) -> EngineConfig:
    return EngineConfig(model="any", kv_type_k=keys, kv_type_v=values, **fields)


def test_every_type_has_a_number() -> None:
    assert set(CELL_TYPES) == set(get_args(KVType))


@pytest.mark.parametrize(
    ("keys", "values", "size"),
    [("f16", "f16", 1), ("bf16", "f16", 1), ("f32", "f32", 2), ("q8_0", "q8_0", 34 / 64), ("q8_0", "q4_0", 52 / 128)],
)
def test_the_size_of_cells_is_that_of_keys_and_values(keys: KVType, values: KVType, size: float) -> None:
    assert relative_size(keys, values) == size


@pytest.mark.parametrize("name", QUANTISED)
def test_a_block_must_not_span_two_heads(name: KVType) -> None:
    check_cell_types(config(name, name), {64, 128}, {32}, AUTO)
    with pytest.raises(LoadError, match=f"^--kv-type-k {name} needs keys of a multiple of 32 .* has 80"):
        check_cell_types(config(name, "f16"), {128, 80}, {32}, AUTO)
    with pytest.raises(LoadError, match=f"^--kv-type-v {name} needs values of a multiple of 32 .* has 48"):
        check_cell_types(config("f16", name), {64}, {48}, NO_FLASH)


@pytest.mark.parametrize("name", QUANTISED)
def test_only_flash_attention_reads_quantised_values(name: KVType) -> None:
    check_cell_types(config(name, "f16"), {64}, {64}, NO_FLASH)
    check_cell_types(config(name, name), {64}, {64}, FLASH)
    with pytest.raises(LoadError, match=f"^--kv-type-v {name} needs flash attention"):
        check_cell_types(config("f16", name), {64}, {64}, on_devices(NO_FLASH))


@pytest.mark.parametrize("name", CELL_TYPES)
def test_only_some_keys_can_be_shifted(name: KVType) -> None:
    quantised = name in QUANTISED
    for size, refused in ((64, name == "bf16"), (96, name == "bf16" or quantised)):
        with pytest.raises(LoadError, match=f"^--context-shift .*--kv-type-k {name}") if refused else nullcontext():
            check_cell_types(config(name, "f16", context_shift=True), {128, size}, {64}, AUTO)
    check_cell_types(config("f16", name, context_shift=True), {96}, {96}, AUTO)


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_keys_are_shifted_only_as_a_whole(name: KVType) -> None:
    check_cell_types(config(name, name, context_shift=True), {64, 128}, {64}, AUTO, {64, 128})
    check_cell_types(config("f16", name, context_shift=True), {128}, {64}, AUTO, {64})
    check_cell_types(config(name, name), {128}, {64}, AUTO, {64})
    with pytest.raises(LoadError, match=f"^--context-shift with --kv-type-k {name} .* rotates 64 numbers of 128"):
        check_cell_types(config(name, name, context_shift=True), {128}, {64}, AUTO, {64})


@pytest.mark.parametrize(("keys", "values"), [("q8_0", "q8_0"), ("q4_0", "q4_0"), ("f32", "bf16"), ("f16", "f16")])
def test_cuda_reads_the_pairs_that_it_was_built_for(keys: KVType, values: KVType) -> None:
    check_cuda(config(keys, values), AUTO, BUILD)


@pytest.mark.parametrize(
    ("keys", "values"), [("q8_0", "f16"), ("q8_0", "q4_0"), ("q5_0", "q5_0"), ("iq4_nl", "iq4_nl")]
)
def test_other_pairs_are_refused_on_cuda(keys: KVType, values: KVType) -> None:
    with pytest.raises(LoadError, match=r"no CUDA kernel .*: choose one of q4_0-q4_0, q8_0-q8_0, f16-f16, bf16-bf16"):
        check_cuda(config(keys, values), FLASH, BUILD)
    if values == "f16":
        check_cuda(config(keys, values), on_devices(NO_FLASH), BUILD)


def test_a_build_may_have_all_cuda_kernels() -> None:
    check_cuda(config("q8_0", "q4_0"), FLASH, "CUDA : FA_QUANTS = all |")
    with pytest.raises(LoadError, match="choose one of all"):
        check_cuda(config("iq4_nl", "iq4_nl"), FLASH, "CUDA : FA_QUANTS = all |")
    with pytest.raises(LoadError, match="choose one of f16 and bf16"):
        check_cuda(config("q8_0", "q8_0"), FLASH, "CPU : AVX2 = 1 |")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Return a maker of models of a family with heads of a size."""
    folder = tmp_path_factory.mktemp("heads")
    families = {family.name: family for family in FAMILIES}

    @cache
    def make(name: str, size: int) -> Path:
        family, path = families[name], folder / f"{name}-{size}.gguf"
        heads: Parameters = {f"attention.{part}_length": size for part in ("key", "value")}
        heads["attention.head_count_kv"] = 2
        if name == "deepseek-2":  # the keys of latent attention hold the values
            heads = {"attention.key_length": size + 8, "attention.value_length": size, "attention.kv_lora_rank": size}
        else:
            heads["rope.dimension_count"] = size
        write_family(Family(name, family.architecture, {**family.parameters, **heads}), path)
        return path

    return make


def probe(path: Path, keys: KVType, values: KVType, *, flash: bool | None, shift: bool = False) -> EngineConfig:
    """Load a model, open its context, and compute. With `shift`, a token is discarded then."""
    settings = EngineConfig(
        model=str(path),
        slots=2,
        context=256,
        threads=1,
        kv_type_k=keys,
        kv_type_v=values,
        flash_attention=flash,
        context_shift=shift,
    )
    with LlamaModel(settings, lambda _share: None) as model, LlamaRunner(model, settings) as runner:
        runner.probe()
        if shift:
            plan = StepPlan((Chunk(running(0, [5, 6, 7, 8]), 3, sample=False),), decode=False)
            assert runner.run(plan).outcome is Outcome.DONE
            runner.cache.shift(Shift(0, 1, 1))
    return settings


@pytest.mark.parametrize(("keys", "values"), [*((name, name) for name in CELL_TYPES), *MIXED])
def test_llama_cpp_computes_with_every_type_on_a_cpu(
    models: Callable[[str, int], Path], keys: KVType, values: KVType
) -> None:
    probe(models("plain", 64), keys, values, flash=None)


@pytest.mark.parametrize("keys", QUANTISED)
def test_llama_cpp_computes_with_quantised_keys_without_flash_attention(
    models: Callable[[str, int], Path], keys: KVType
) -> None:
    probe(models("plain", 64), keys, "f16", flash=False)


@pytest.mark.parametrize("flash", [None, True, False])
@pytest.mark.parametrize(("keys", "values"), [("q8_0", "f16"), ("f16", "q8_0"), ("q4_0", "q4_0")])
@pytest.mark.parametrize("size", [40, 48])
def test_heads_that_no_blocks_fill_are_refused(
    models: Callable[[str, int], Path], size: int, keys: KVType, values: KVType, *, flash: bool | None
) -> None:
    with pytest.raises(LoadError, match=r"needs (keys|values) of a multiple of 32 numbers"):
        probe(models("plain", size), keys, values, flash=flash)


@pytest.mark.parametrize("keys", ["f16", "f32", *QUANTISED])
def test_llama_cpp_shifts_every_type_that_is_allowed(models: Callable[[str, int], Path], keys: KVType) -> None:
    probe(models("plain", 64), keys, "f16", flash=None, shift=True)


def test_a_model_that_rotates_parts_of_its_keys_is_recognised(models: Callable[[str, int], Path]) -> None:
    with pytest.raises(LoadError, match=r"^--context-shift with --kv-type-k q8_0 .* rotates 8 numbers of 64"):
        probe(models("deepseek-2", 56), "q8_0", "f16", flash=None, shift=True)


def test_latent_attention_needs_one_type(models: Callable[[str, int], Path]) -> None:
    with pytest.raises(LoadError, match=r"does not support different K \(q8_0\) and V \(f16\)"):
        probe(models("deepseek-2", 56), "q8_0", "f16", flash=None)


WITHOUT_THE_CHECK = """
import sys
from engine.llama import model
from tests.engine.llama.memory.test_cell_types import Path, probe
from tests.repeat import thorough

model.check_cell_types = lambda *_, **__: None
probe(Path(sys.argv[1]), sys.argv[2], "f16", flash=False, shift=sys.argv[3:] == ["shift"])
"""


def without_the_check(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", WITHOUT_THE_CHECK, *arguments], capture_output=True, check=False)


@thorough
@pytest.mark.parametrize(("size", "dies"), [(40, True), (48, False)])
def test_llama_cpp_itself_dies_or_computes_nonsense(
    models: Callable[[str, int], Path], size: int, *, dies: bool
) -> None:
    """This is why the size of a head is checked here."""
    path = str(models("plain", size))
    ended = without_the_check(path, "q8_0")
    assert ended.returncode == (-signal.SIGABRT if dies else 1)
    assert (b"GGML_ASSERT" in ended.stderr, b"gave no logits" in ended.stderr) == (dies, not dies)


@thorough
@pytest.mark.parametrize(("keys", "end"), [("q8_0", signal.SIGSEGV), ("bf16", signal.SIGABRT)])
def test_llama_cpp_itself_dies_of_other_shifts(
    models: Callable[[str, int], Path], keys: KVType, end: signal.Signals
) -> None:
    """This is why the types of shifted keys are checked here."""
    assert without_the_check(str(models("plain", 32)), keys, "shift").returncode == -end


@thorough
def test_llama_cpp_itself_dies_of_a_shift_of_parts_of_keys(tmp_path: Path) -> None:
    """This is why the rotated parts of keys are checked here."""
    plain = next(family for family in FAMILIES if family.name == "plain")
    sizes: Parameters = {"attention.key_length": 64, "attention.value_length": 64, "rope.dimension_count": 32}
    path = tmp_path / "partial.gguf"
    write_family(Family("partial", "stablelm", {**plain.parameters, **sizes}), path)
    assert without_the_check(str(path), "q8_0", "shift").returncode == -signal.SIGABRT
