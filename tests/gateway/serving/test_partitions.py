"""Cache partitions: by `cache_salt`, and by credentials if that is switched on."""

import orjson
import pytest

from gateway.middleware.caller import Caller
from gateway.serving.generations import partition_of
from tests.gateway.apis.openai.responses.asking import answering, chatting
from tests.gateway.apis.requests import EXTENDED, GENERATIONS, path_of
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall

pytestmark = pytest.mark.anyio


async def partition_in_engine(name: str, *, key: str = "", switched_on: bool = False, **fields: object) -> str:
    """Return the cache partition of a request with this key."""
    engine = chatting(answering("a"))
    headers = {"authorization": f"Bearer {key}"} if key else {}
    app = app_of(engine, partition_cache=switched_on)
    call = await AsgiCall(app, path_of(name), orjson.dumps(GENERATIONS[name] | fields), headers=headers).run()
    assert call.status == 200
    (generation,) = engine.generations
    return generation.request.cache_partition


@pytest.mark.parametrize("name", EXTENDED)
async def test_a_salt_is_a_partition_and_an_api_key_is_not(name: str) -> None:
    assert await partition_in_engine(name) == await partition_in_engine(name, key="a") == ""
    assert await partition_in_engine(name, cache_salt="mine", key="a") == "mine"


@pytest.mark.parametrize("name", EXTENDED)
async def test_api_keys_are_partitions_only_if_switched_on(name: str) -> None:
    asked = [("", {}), ("a", {}), ("b", {}), ("a", {"cache_salt": "mine"}), ("b", {"cache_salt": "mine"})]
    partitions = [await partition_in_engine(name, key=key, switched_on=True, **fields) for key, fields in asked]
    assert len(set(partitions)) == len(asked)
    assert partitions == [await partition_in_engine(name, key=key, switched_on=True, **fields) for key, fields in asked]


def test_a_salt_makes_no_key_another_one() -> None:
    first, eleventh = (Caller(request_id="r", cache_partition=key) for key in ("api-key-1", "api-key-11"))
    assert partition_of(first, "1x") != partition_of(eleventh, "x")


async def test_the_engine_never_gets_an_api_key() -> None:
    assert "secret" not in await partition_in_engine("/generate", key="secret", switched_on=True)
