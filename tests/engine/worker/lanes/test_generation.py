"""The lane of the generation requests, with the fake runner."""

from dataclasses import replace

import pytest

from engine.config import EngineConfig
from engine.core.step import Chunk, StepPlan
from engine.request import GenerationRequest, Sampling
from engine.testing.fake_embedder import FakeEmbedder
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from engine.worker.lanes.generation import GenerationLane
from engine.worker.loaded import LoadedModel
from tests.engine.driver import at_once, running


def lane(speculation: bool | None) -> GenerationLane:
    model, embedder = FakeModel(), FakeEmbedder()
    loaded = LoadedModel(model, FakeRunner(model), embedder.limits, lambda _cells: embedder)
    made = loaded.lanes(EngineConfig(model="fake", speculation=speculation))[GenerationRequest]
    assert isinstance(made, GenerationLane)
    return made


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("asked", [True, False, None])
@pytest.mark.parametrize("speculation", [True, False, None])
def test_the_mode_of_speculation_applies_to_requests_that_do_not_choose(
    *, speculation: bool | None, asked: bool | None, seed: int | None
) -> None:
    request = GenerationRequest(id="r", prompts=("p",), speculative=asked, sampling=Sampling(seed=seed))
    (sequence,) = at_once(lane(speculation).admit(1, request)).waiting
    expected = speculation if asked is None else asked
    assert sequence.request.speculative is expected
    assert (sequence.drafter is not None) is (seed is None if expected is None else expected)


@pytest.mark.parametrize("all_cores", [True, False])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_step_of_one_row_that_takes_all_cores_has_them_alone(rows: int, *, all_cores: bool) -> None:
    made = lane(speculation=False)
    made._model.traits = replace(made._model.traits, uses_all_cores=all_cores)
    chunks = tuple(Chunk(running(seq_id, [1, 2]), 1, sample=True) for seq_id in range(rows))
    assert made.needs_all_cores(StepPlan(chunks, decode=True)) is (all_cores and rows == 1)
