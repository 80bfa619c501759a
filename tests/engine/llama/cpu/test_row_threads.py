"""Threads that share out the rows of a step, and draws in them."""

import threading
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.core.sequence import Sequence
from engine.core.step import DrawFailure
from engine.llama.cpu.row_threads import RowThreads
from engine.llama.drawing import Drawer, OutputsOf, outputs_of_all
from engine.llama.model import LlamaModel
from engine.request import Sampling
from engine.sampling.candidates import Logits
from tests.engine.driver import running
from tests.models import model_path

ROWS = 27
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "all tokens": Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    "top_p": Sampling(top_p=0.9),
    "min_p": Sampling(min_p=0.05, ignore_eos=True),
    "top_k": Sampling(top_k=7),
    "a bias": Sampling(temperature=0.0, logit_bias=((5, 3.0),)),
    "a penalty": Sampling(temperature=0.0, repeat_penalty=1.3),
    "a chain": Sampling(temperature=1.0, typical_p=0.9, xtc_probability=0.5, xtc_threshold=0.05),
}


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    config = EngineConfig(model=str(model_path()), slots=1, context=256, threads=1)
    with LlamaModel(config, lambda _share: None) as loaded:
        yield loaded


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 100])
def test_the_results_are_in_the_order_of_the_rows(count: int, rows: int) -> None:
    with closing(RowThreads(count)) as threads:
        for _ in range(3):
            assert threads.map(lambda of: list(range(rows))[of], rows) == list(range(rows))


def test_parts_are_done_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=60)

    def work(of: slice) -> list[int]:
        together.wait()
        return [of.start]

    with closing(RowThreads(3)) as threads:
        assert threads.map(work, 24) == [0, 8, 16]


@pytest.mark.parametrize("failing", [0, 8, 16])
def test_an_error_is_raised_after_the_other_parts_have_ended(failing: int) -> None:
    done = []

    def work(of: slice) -> list[int]:
        if of.start == failing:
            raise ValueError(failing)
        done.append(of.start)
        return [of.start]

    with closing(RowThreads(3)) as threads:
        with pytest.raises(ValueError, match=str(failing)):
            threads.map(work, 24)
        assert sorted(done) == sorted({0, 8, 16} - {failing})
        assert threads.map(lambda of: [of.stop], 24) == [8, 16, 24]


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_threads_draw_the_same_tokens_as_one(model: LlamaModel, sampling: Sampling) -> None:
    generator = np.random.default_rng(3)
    steps = generator.normal(0, 3, (4, ROWS, model.info.vocabulary)).astype(np.float32)
    steps[2, 5] = np.nan
    drawn = []
    for threads in (1, 3):
        sequences = [_sequence(at, sampling) for at in range(ROWS)]
        with closing(Drawer(model, threads)) as drawer:
            drawn.append([drawer.draw_rows(sequences, outputs_of(logits.copy())) for logits in steps])
            best = [output.best[0] for output in drawer.outputs(outputs_of(steps[0]), ROWS)]
            assert best == steps[0].argmax(axis=1).tolist()
    assert drawn[0] == drawn[1]
    assert [isinstance(draw, DrawFailure) for draw in drawn[1][2]] == [at == 5 for at in range(ROWS)]


def outputs_of(logits: Logits) -> OutputsOf:
    return lambda rows: outputs_of_all(logits[rows])


def _sequence(at: int, sampling: Sampling) -> Sequence:
    logprobs = 2 if at % 3 else None
    made = running(at, [3 + at, 4, 5], sampling=sampling, logprobs=logprobs, sampled_logprobs=at % 3 == 1)
    made.seed = at
    return made
