"""The registry: the model of a request, by name and by task."""

from pathlib import Path

import pytest

from engine import EngineState, EngineStatus, Unavailable
from gateway.app import create_models
from gateway.middleware.errors import RefusedError
from gateway.preparation.preparer import InlinePreparer
from gateway.serving.models import Models, Task
from tests.gateway.application import settings_for
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio

EMBEDDER = Path(__file__)


def one_model() -> Models:
    return create_models(FakeEngine().as_engine(), settings_for(), None, InlinePreparer(), ())


def two_models() -> Models:
    settings = settings_for(embedding_model=EMBEDDER)
    return create_models(FakeEngine().as_engine(), settings, FakeEngine().as_engine(), InlinePreparer(), ())


@pytest.mark.parametrize("task", Task)
@pytest.mark.parametrize("name", [None, "default", "tiny", "application", "application.py"])
async def test_one_model_does_every_task_under_each_of_its_names(task: Task, name: str | None) -> None:
    models = one_model()
    assert await models.resolve(name, task) is models.all[0]


@pytest.mark.parametrize(
    ("task", "name", "index"),
    [
        (Task.GENERATE, None, 0),
        (Task.TOKENIZE, None, 0),
        (Task.EMBED, None, 1),
        (Task.EMBED, "default", 1),
        (Task.EMBED, "tiny", 0),
        (Task.EMBED, EMBEDDER.stem, 1),
        (Task.TOKENIZE, EMBEDDER.stem, 1),
    ],
)
async def test_two_models_share_the_tasks(task: Task, name: str | None, index: int) -> None:
    models = two_models()
    assert await models.resolve(name, task) is models.all[index]


async def test_a_model_that_only_embeds_does_not_generate() -> None:
    with pytest.raises(RefusedError) as caught:
        await two_models().resolve(EMBEDDER.stem)
    assert (caught.value.problem.status, caught.value.problem.code) == (400, "unsupported_model")


@pytest.mark.parametrize("task", Task)
async def test_an_unknown_name_is_a_404_that_has_the_known_ones(task: Task) -> None:
    with pytest.raises(RefusedError, match=f"this server has 'tiny' and '{EMBEDDER.stem}'") as caught:
        await two_models().resolve("x", task)
    assert (caught.value.problem.status, caught.value.problem.param) == (404, "model")


async def test_a_model_that_is_not_loaded_can_be_found_but_not_used() -> None:
    engine = FakeEngine()
    engine.model, engine.status = None, EngineStatus(EngineState.LOADING, "The model is loading.", 0.5, 0)
    models = create_models(engine.as_engine(), settings_for(), None, InlinePreparer(), ())
    with pytest.raises(Unavailable, match="loading"):
        _ = models.find("tiny").loaded
