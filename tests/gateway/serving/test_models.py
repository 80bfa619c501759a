"""The registry: the model of a request, by name and by task."""

import errno
import os
from pathlib import Path

import pytest

from engine import EngineState, EngineStatus, Unavailable
from gateway.app import create_gateway
from gateway.cli import read_settings
from gateway.hub.reference import HubReference
from gateway.keys.key import Key
from gateway.middleware.caller import Caller
from gateway.middleware.errors import RefusedError
from gateway.serving.adapters import Adapter
from gateway.serving.models import Models
from gateway.serving.served import Task
from gateway.serving.sources import OpenEngine
from tests.gateway.application import gateway_of
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio

EMBEDDER = Path(__file__)
ANYONE = Caller(request_id="req_1")


def one_model() -> Models:
    return gateway_of(FakeEngine()).models


def two_models() -> Models:
    return gateway_of(FakeEngine(), FakeEngine(), embedding_model=EMBEDDER).models


@pytest.mark.parametrize("task", Task)
@pytest.mark.parametrize(
    "name", [None, "default", "tiny", "application", "application.py", "tiny:latest", "default:latest"]
)
async def test_one_model_does_every_task_under_each_of_its_names(task: Task, name: str | None) -> None:
    models = one_model()
    assert await models.resolve(ANYONE, name, task) is models.all[0].loaded()


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
    assert await models.resolve(ANYONE, name, task) is models.all[index].loaded()


async def test_a_model_that_only_embeds_does_not_generate() -> None:
    with pytest.raises(RefusedError) as caught:
        await two_models().resolve(ANYONE, EMBEDDER.stem)
    assert (caught.value.problem.status, caught.value.problem.code) == (400, "unsupported_model")


async def test_a_model_that_only_embeds_needs_no_template(caplog: pytest.LogCaptureFixture) -> None:
    for model in gateway_of(FakeEngine(), FakeEngine(), embedding_model=EMBEDDER).models.all:
        model.loaded().prompts.warn_without_template(model.name)
    (record,) = caplog.records
    assert record.getMessage().startswith("the model tiny has no chat template")


async def test_a_model_that_is_open_at_the_start_is_checked_there_only(caplog: pytest.LogCaptureFixture) -> None:
    await gateway_of(FakeEngine()).models.resolve(ANYONE, None)
    assert not caplog.records


@pytest.mark.parametrize("task", Task)
async def test_an_unknown_name_is_a_404_that_has_the_known_ones(task: Task) -> None:
    with pytest.raises(RefusedError, match=f"this server has 'tiny', '{EMBEDDER.stem}'") as caught:
        await two_models().resolve(ANYONE, "x", task)
    assert (caught.value.problem.status, caught.value.problem.param) == (404, "model")


async def test_a_model_that_is_not_loaded_can_be_found_but_not_used() -> None:
    engine = FakeEngine()
    engine.model, engine.status = None, EngineStatus(EngineState.LOADING, "The model is loading.", 0.5, 0)
    with pytest.raises(Unavailable, match="loading"):
        _ = gateway_of(engine).models.find(ANYONE, "tiny").loaded().loaded


async def test_a_model_that_is_named_default_is_the_one_that_is_asked_for() -> None:
    first, second = two_models().all
    second.names |= {"default"}
    models = Models([first, second], dict.fromkeys(Task, first))
    assert [models.find(ANYONE, name) for name in ("default", "default:latest", None)] == [second, second, first]


async def test_only_an_unknown_name_selects_the_default_where_any_name_does() -> None:
    first, second = two_models().all
    models = Models([first, second], dict.fromkeys(Task, first), any_name=True)
    assert models.find(ANYONE, "x") is first
    assert models.find(ANYONE, second.name) is second


async def test_any_name_selects_the_model_inside_the_package_for_clients_of_llama_server() -> None:
    sources = {"tiny": OpenEngine(FakeEngine().as_engine())}
    models = create_gateway(sources, read_settings(["serve", "--answers-like", "llama-server"], {})).models
    assert models.find(ANYONE, "x") is models.all[0]


async def test_a_model_joins_under_free_names_and_in_place_of_the_one_with_its_name() -> None:
    models = one_model()
    for _ in range(2):
        joining = two_models().all[1]
        joining.names |= {"tiny", "new:latest"}
        models.join(joining)
    assert models.all == models.named == [models.all[0], joining]
    assert joining.names == {EMBEDDER.stem, EMBEDDER.name, "new:latest"}
    assert models.find(ANYONE, "new:latest") is joining


def caller_for(*models: str) -> Caller:
    """Return a caller whose key allows only these models."""
    return ANYONE.identified(Key(id="key_1", name="one", models=frozenset(models)))


@pytest.mark.parametrize("name", [EMBEDDER.stem, EMBEDDER.name])
async def test_a_key_allows_a_model_by_any_of_its_names(name: str) -> None:
    models = two_models()
    for asked in (EMBEDDER.stem, EMBEDDER.name, None, "default"):
        assert await models.resolve(caller_for(name), asked, Task.EMBED) is models.all[1].loaded()
    assert models.allowed(caller_for(name)) == [models.all[1]]


@pytest.mark.parametrize("asked", ["tiny", None, "default"])
async def test_a_model_that_the_key_does_not_allow_is_a_403(asked: str | None) -> None:
    with pytest.raises(RefusedError) as caught:
        await two_models().resolve(caller_for(EMBEDDER.stem), asked)
    assert (caught.value.problem.status, caught.value.problem.code) == (403, "model_not_allowed")


@pytest.mark.parametrize("any_name", [False, True])
async def test_a_refusal_cuts_a_long_name(any_name: bool) -> None:
    first, second = two_models().all
    models = Models([first, second], dict.fromkeys(Task, first), any_name=any_name)
    with pytest.raises(RefusedError) as caught:
        models.find(caller_for(EMBEDDER.stem), "x" * 10**6)
    assert len(caught.value.problem.message) < 200


async def test_a_key_learns_no_names_of_other_models() -> None:
    with pytest.raises(RefusedError) as unknown:
        await two_models().resolve(caller_for(EMBEDDER.stem), "x")
    assert unknown.value.problem.status == 404
    with pytest.raises(RefusedError) as unsupported:
        await two_models().resolve(caller_for(EMBEDDER.stem), EMBEDDER.stem)
    assert unsupported.value.problem.status == 400
    with pytest.raises(RefusedError, match="this server has none that this API key may use") as none:
        await two_models().resolve(caller_for(), "x")
    assert not any("tiny" in str(caught.value) for caught in (unknown, unsupported, none))
    assert two_models().allowed(caller_for()) == []


async def test_a_key_without_a_list_of_models_allows_all() -> None:
    models = two_models()
    caller = ANYONE.identified(Key(id="key_1", name="one"))
    assert models.allowed(caller) == list(models.all) == models.allowed(ANYONE)


async def test_the_fingerprint_changes_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"

    def fingerprint(content: bytes, changed: int) -> str:
        file.write_bytes(content)
        os.utime(file, ns=(0, changed))
        return gateway_of(FakeEngine(), model=file).models.all[0].fingerprint

    states = [(b"a", 1), (b"b", 2), (b"ab", 2), (b"a", 1)]
    first, *others, again = (fingerprint(*state) for state in states)
    assert first == again
    assert len({first, *others}) == 3


async def test_the_fingerprint_of_a_model_that_is_downloaded_at_the_start_is_that_of_its_file(tmp_path: Path) -> None:
    async def fingerprint(content: bytes) -> str:
        engine = FakeEngine()
        (model,) = gateway_of(engine, model=HubReference("someone/some-GGUF")).models.all
        model.loaded()  # as at the start, to wait for its template
        file = tmp_path / "m.gguf"
        file.write_bytes(content)
        engine.file = str(file)
        return (await model.hold(ANYONE)).fingerprint

    assert await fingerprint(b"a") != await fingerprint(b"bc")


async def test_the_fingerprint_of_an_adapter_is_also_that_of_its_model() -> None:
    models, adapter = two_models(), Adapter(0, "fr", EMBEDDER, 1.0)
    adapted = [model.adapted(adapter, lambda _model, _engine: pytest.fail("it is not loaded")) for model in models.all]
    assert len({model.fingerprint for model in (*models.all, *adapted)}) == 4


async def test_a_file_that_cannot_be_read_for_now_has_no_time_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a share whose server is away."""

    def away(_file: Path, **_options: bool) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", away)
        model = one_model().all[0]
        assert model.created == 0
    assert model.created > 0
