"""The embedder on real models: the same vectors in any pass, freed memory, and the state after an abort."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import pytest

from engine.config import EngineConfig
from engine.core.embedding.step import EmbeddingChunk, EmbeddingText
from engine.core.step import Outcome
from engine.errors import LoadError
from engine.llama import devices
from engine.llama.embedding.embedder import EmbedderFactory, LlamaEmbedder, embedding_limits
from engine.llama.memory.buffers import HOST
from engine.llama.model import LlamaModel
from engine.worker.main import load
from tests.architectures.models import family_model
from tests.c_calls import Handles
from tests.engine.llama.embedding.running import Vector, computed_by_llama_cpp, embed, texts_of
from tests.models import model_path
from tests.random_bert import CONTEXT, LAYERS, WIDTH, write_random_bert

POOLINGS = [gguf.PoolingType.MEAN, gguf.PoolingType.CLS, gguf.PoolingType.LAST]


def config(path: Path) -> EngineConfig:
    return EngineConfig(model=str(path), slots=2, context=512 if path == model_path() else None, repack=False)


class Open:
    """A model and its embedder."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.config = config(path)
        self.model = stack.enter_context(LlamaModel(self.config, lambda _share: None))
        self.limits = embedding_limits(self.model)
        self.embedder = stack.enter_context(LlamaEmbedder(self.model, self.config, self.limits))

    def text(self, text: str) -> EmbeddingText:
        (one,) = texts_of(self.model.tokenize(text))
        return one

    def embed(self, *texts: str, rows: int = 1000) -> list[Vector]:
        """Return the vectors of texts that run together, each with `rows` tokens per pass."""
        return embed(self.embedder, *map(self.model.tokenize, texts), rows=rows)


@pytest.fixture(scope="module")
def berts(tmp_path_factory: pytest.TempPathFactory) -> dict[gguf.PoolingType, Path]:
    folder = tmp_path_factory.mktemp("bert")
    paths = {pooling: folder / f"{pooling.name}.gguf" for pooling in POOLINGS}
    for pooling, path in paths.items():
        write_random_bert(path, pooling)
    return paths


@pytest.fixture
def causal() -> Iterator[Open]:
    with ExitStack() as stack:
        yield Open(model_path(), stack)


def pooled_by_llama_cpp(opened: Open, text: str, pooling: int) -> Vector:
    """Return the vector that llama.cpp computes for a text in one pass, scaled to length 1."""

    def read(context: llama_cpp.llama_context_p) -> Vector:
        pointer = llama_cpp.llama_get_embeddings_seq(context, 0)
        return np.ctypeslib.as_array(pointer, (opened.model.info.embedding_size,))

    vector = computed_by_llama_cpp(opened.model, opened.model.tokenize(text), pooling, read)
    scaled: Vector = vector / np.linalg.norm(vector)
    return scaled


ROUNDING = 1e-4
"""Passes of other lengths round differently; one word less in the text makes ten times this difference."""


@pytest.mark.parametrize("pooling", POOLINGS)
def test_an_encoder_pools_as_its_file_says(berts: dict[gguf.PoolingType, Path], pooling: gguf.PoolingType) -> None:
    with ExitStack() as stack:
        opened = Open(berts[pooling], stack)
        [vector] = opened.embed("hello, world")
        assert vector.shape == (WIDTH,)
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)
        assert vector == pytest.approx(pooled_by_llama_cpp(opened, "hello, world", int(pooling)), abs=1e-6)


def test_a_causal_model_without_pooling_uses_the_mean(causal: Open) -> None:
    text = "Once upon a time there was a little girl."
    expected = pooled_by_llama_cpp(causal, text, llama_cpp.LLAMA_POOLING_TYPE_MEAN)
    assert causal.embed(text)[0] == pytest.approx(expected, abs=ROUNDING)


def test_a_split_text_has_the_vector_of_the_whole_one(causal: Open) -> None:
    text = "Once upon a time there was a little girl. " * 5
    [whole] = causal.embed(text)
    assert causal.embed(text, rows=7)[0] == pytest.approx(whole, abs=ROUNDING)
    assert causal.embed(text.rsplit(" ", 2)[0])[0] != pytest.approx(whole, abs=10 * ROUNDING)


@pytest.mark.parametrize("encoder", [False, True])
def test_a_text_has_the_same_vector_beside_others(berts: dict[gguf.PoolingType, Path], *, encoder: bool) -> None:
    texts = ["once upon a time", "a", "the little girl and her dog went home"]
    with ExitStack() as stack:
        opened = Open(berts[gguf.PoolingType.MEAN] if encoder else model_path(), stack)
        alone = [opened.embed(text)[0] for text in texts]
        np.testing.assert_allclose(opened.embed(*texts), alone, atol=ROUNDING)


def test_a_dropped_text_leaves_no_cells_behind(causal: Open) -> None:
    [expected] = causal.embed("a new text")
    half = causal.text("an old text that nobody wants any more")
    causal.embedder.run((EmbeddingChunk(half, 5),))
    causal.embedder.drop(0)
    assert (causal.embed("a new text")[0] == expected).all()


def test_an_abort_ends_a_pass_and_the_next_one_is_right(causal: Open) -> None:
    [expected] = causal.embed("hello")
    long = causal.text("Once upon a time there was a little girl. " * 12)
    causal.embedder.arm()
    causal.embedder.abort()
    assert causal.embedder.run((EmbeddingChunk(long, long.pending),)).outcome is Outcome.ABORTED
    causal.embedder.drop(0)
    causal.embedder.arm()
    assert (causal.embed("hello")[0] == expected).all()


def test_an_encoder_and_a_causal_model_report_their_limits(berts: dict[gguf.PoolingType, Path], causal: Open) -> None:
    assert causal.limits.splits
    assert causal.limits.longest == causal.limits.cells == 512
    with ExitStack() as stack:
        limits = Open(berts[gguf.PoolingType.MEAN], stack).limits
        assert not limits.splits
        assert limits.longest == limits.rows == CONTEXT


def test_a_long_step_of_an_encoder_reports_its_progress_and_can_be_aborted(
    berts: dict[gguf.PoolingType, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.llama.embedding.embedder._LONG_STEP", 64)
    with ExitStack() as stack:
        opened = Open(berts[gguf.PoolingType.MEAN], stack)
        reports: list[None] = []
        [expected] = opened.embed("a " * 100)
        opened.embedder.on_progress = lambda: reports.append(None)
        opened.embed("a " * 10)
        assert not reports
        assert (opened.embed("a " * 100)[0] == expected).all()
        assert len(reports) > LAYERS
        opened.embedder.on_progress = opened.embedder.abort
        long = opened.text("a " * 100)
        assert opened.embedder.run((EmbeddingChunk(long, long.pending),)).outcome is Outcome.ABORTED
        opened.embedder.arm()
        opened.embedder.on_progress = lambda: None
        assert (opened.embed("a " * 100)[0] == expected).all()


def test_an_encoder_takes_its_longest_text(berts: dict[gguf.PoolingType, Path]) -> None:
    with ExitStack() as stack:
        opened = Open(berts[gguf.PoolingType.MEAN], stack)
        text = "a " * (CONTEXT - 2)
        assert len(opened.model.tokenize(text)) == opened.limits.longest
        assert np.isfinite(opened.embed(text)).all()


def test_every_llama_cpp_object_is_freed_once(
    berts: dict[gguf.PoolingType, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = Handles(monkeypatch)
    for path in (model_path(), berts[gguf.PoolingType.MEAN]):
        with ExitStack() as stack:
            Open(path, stack).embed("hello")
        assert (handles.alive, handles.mistakes) == ({}, [])


def test_an_embedder_without_memory_raises_and_leaks_no_object(causal: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    handles = Handles(monkeypatch)
    monkeypatch.setattr(llama_cpp, "llama_init_from_model", lambda *_: None)
    with pytest.raises(LoadError, match="cannot be made"):
        LlamaEmbedder(causal.model, causal.config, causal.limits)
    assert (handles.alive, handles.mistakes) == ({}, [])


def test_a_model_that_generates_opens_embedders_of_the_asked_size(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = Handles(monkeypatch)
    with ExitStack() as stack:
        loaded = load(config(model_path()), lambda _share: None, stack)
        small, large = (loaded.open_embedder(cells) for cells in (256, 512))
        assert isinstance(small, LlamaEmbedder)
        assert isinstance(large, LlamaEmbedder)
        taken = [sum(embedder.buffers.cells.values()) for embedder in (small, large)]
        assert taken[1] == pytest.approx(2 * taken[0], rel=0.05)  # the log has hundredths of a MiB
        text = loaded.model.tokenize("Once upon a time there was a little girl.")
        [expected] = embed(small, text)
        small.shut_down()
        assert embed(large, text)[0] == pytest.approx(expected, abs=ROUNDING)
    assert (handles.alive, handles.mistakes) == ({}, [])


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, int], None]:
    """Set the bytes of host memory that are available, and those of mapped files among them."""

    def choose(free: float, mapped: int) -> None:
        monkeypatch.setattr(devices, "available_memory", lambda: int(free))
        monkeypatch.setattr(devices, "mapped_memory", lambda: mapped)

    return choose


TOO_LARGE = r"^an embedder for texts of 65536 tokens needs \d+ MiB of memory, and there are \d+$"


@pytest.mark.parametrize("name", ["plain", "gemma-3"])
def test_an_embedder_that_memory_does_not_hold_is_refused_before_it_is_opened(
    name: str, available: Callable[[float, int], None]
) -> None:
    """Gemma 3 has sliding windows, whose cells are fewer in the slots of a unified cache."""
    settings = EngineConfig(model=str(family_model(name)), slots=1, kv_unified=True, context=1024, repack=False)
    with ExitStack() as stack:
        model = stack.enter_context(LlamaModel(settings, lambda _share: None))
        factory = EmbedderFactory(model, settings, embedding_limits(model), stack)
        taken = factory.open(65536).buffers
        available(sum(taken.cells.values()), 0)  # nothing is left for a step
        with pytest.raises(LoadError, match=TOO_LARGE):
            factory.open(65536)
        outputs = 4 * embedding_limits(model).rows * (model.info.vocabulary + model.info.embedding_size)
        available(sum(taken.all.values()) + 2 * outputs, 0)
        factory.open(65536)


def test_an_embedder_leaves_memory_for_the_mapped_weights(
    causal: Open, available: Callable[[float, int], None]
) -> None:
    """They count as available, and are read from the file again and again where something takes their memory."""
    with ExitStack() as stack:
        factory = EmbedderFactory(causal.model, causal.config, causal.limits, stack)
        weights, plenty = causal.model.weights[HOST], 2**28
        available(weights + plenty, weights + plenty)  # files that are not the model's may go
        factory.open(256)
        causal.model.weights[HOST] += plenty
        with pytest.raises(LoadError, match=r"and there are 0$"):
            factory.open(256)
        available(weights + plenty, 0)  # the weights are not mapped
        factory.open(256)


def test_a_model_that_only_embeds_is_loaded_without_a_runner(berts: dict[gguf.PoolingType, Path]) -> None:
    with ExitStack() as stack:
        loaded = load(config(berts[gguf.PoolingType.CLS]), lambda _share: None, stack)
        assert loaded.runner is None
        assert not loaded.model.info.generates
        assert loaded.model.info.embedding_size == WIDTH
        assert loaded.open_embedder(512) is loaded.open_embedder(1024)


def test_large_vocabularies_have_smaller_passes(causal: Open) -> None:
    causal.model.info = replace(causal.model.info, vocabulary=256_000)
    assert embedding_limits(causal.model).rows == 2**27 // (4 * 256_000)
