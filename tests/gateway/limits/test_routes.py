"""Limits on the routes: no route that uses the engine can pass them, and each refusal says how to go on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest

from engine import Busy, EngineError, Finished, FinishReason, Text
from gateway.keys.key import Key
from gateway.limits.ledger import KeyLedger
from gateway.serving.records import Outcome, RequestRecord
from tests.gateway.apis.requests import EMBEDDINGS, GENERATIONS, path_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import MODEL, FakeEngine, say_nothing
from tests.gateway.limits.limited import Limited, limited_by
from tests.gateway.limits.virtual import VirtualClock, key_with

pytestmark = pytest.mark.anyio

BODIES: dict[str, dict[str, Any]] = {
    **GENERATIONS,
    **EMBEDDINGS,
    "/v1/responses background": {"input": "x", "background": True},
}
NAMES = [f"x-ratelimit-{part}-{unit}" for unit in ("requests", "tokens") for part in ("limit", "remaining", "reset")]


def ledger_of(limited: Limited, key: Key) -> KeyLedger:
    return limited.limiter.ledger(key.id)


def used(limited: Limited, key: Key) -> int:
    """Return the tokens that the key has left of a budget of 10,000, and that none are reserved."""
    ledger = ledger_of(limited, key)
    assert ledger.running == 0
    return 10_000 - ledger.day.remaining(10_000, limited.limiter.clock().time)


@pytest.mark.parametrize("name", BODIES)
async def test_no_route_passes_a_limit(name: str) -> None:
    limited = limited_by(key_with(requests_per_minute=1), clock=VirtualClock())
    async with limited.gateway.running():
        first = await post(limited.app, path_of(name), BODIES[name])
        second = await post(limited.app, path_of(name), BODIES[name])
    assert first.status == 200, first.content
    assert second.status == 429
    assert b"1 requests in a minute" in second.content
    assert (second.header("retry-after"), second.header("x-should-retry")) == ("60", "true")
    assert len(limited.engine.generations) + len(limited.engine.embeddings) == 1


@pytest.mark.parametrize("name", BODIES)
async def test_every_route_is_charged_for_what_was_computed(name: str) -> None:
    key = key_with()
    limited = limited_by(key)
    async with limited.gateway.running():
        await post(limited.app, path_of(name), BODIES[name])
        with anyio.fail_after(10):
            while ledger_of(limited, key).running:
                await anyio.lowlevel.checkpoint()
    if limited.engine.embeddings:
        assert used(limited, key) == 1
    else:
        (generation,) = limited.engine.generations
        assert used(limited, key) == sum(generation.prompt_tokens) - 1 + 3


async def test_the_headers_are_on_every_response_of_a_limited_key() -> None:
    limited = limited_by(key_with(requests_per_minute=60, tokens_per_minute=6000), clock=VirtualClock())
    for call in (
        await post(limited.app, "/v1/completions", {"prompt": "four", "max_tokens": 5}),
        await post(limited.app, "/v1/completions", {"prompt": "four", "stream": True}),
        await post(limited.app, "/v1/completions", {"prompt": {}}),
        await post(limited.app, "/v1/completions", b"{"),
        await post(limited.app, "/nowhere", {}),
        await get(limited.app, "/v1/models"),
    ):
        assert all(call.header(name) for name in NAMES), call.path
        assert call.header("x-ratelimit-limit-requests") == "60"
    assert call.header("x-ratelimit-remaining-requests") == "58"
    assert call.header("x-ratelimit-remaining-tokens") == "5988"
    assert call.header("x-ratelimit-reset-requests") == "2s"
    assert call.header("x-ratelimit-reset-tokens") == "120ms"


async def test_the_head_of_a_stream_counts_what_is_reserved() -> None:
    limited = limited_by(key_with(tokens_per_minute=6000), clock=VirtualClock())
    call = await post(limited.app, "/v1/completions", {"prompt": "four", "max_tokens": 96, "stream": True})
    assert call.header("x-ratelimit-remaining-tokens") == "5900"


async def test_a_model_that_shifts_its_context_reserves_more_than_a_slot() -> None:
    limited = limited_by(key_with(tokens_per_minute=10**6), clock=VirtualClock())
    limited.engine.model = replace(MODEL, shifts=True)
    body = {"prompt": "four", "max_tokens": 2 * MODEL.context, "stream": True}
    call = await post(limited.app, "/v1/completions", body)
    assert call.header("x-ratelimit-remaining-tokens") == str(10**6 - 4 - 2 * MODEL.context)


@pytest.mark.parametrize("key", [None, key_with(), key_with(concurrent_requests=5, tokens_per_day=10**6)])
async def test_callers_without_limits_per_minute_have_no_such_headers(key: Key | None) -> None:
    call = await post(limited_by(key).app, "/v1/completions", {"prompt": "x"})
    assert call.status == 200
    assert not any(call.header(name) for name in NAMES)


async def test_a_request_that_the_engine_refuses_is_charged_no_tokens() -> None:
    key, engine = key_with(tokens_per_day=10_000, requests_per_minute=5), FakeEngine()
    engine.refusal = Busy("full", code="queue_full", retry_after=3)
    limited = limited_by(key, engine)
    call = await post(limited.app, "/v1/completions", {"prompt": "x"})
    assert (call.status, call.header("retry-after"), call.header("x-should-retry")) == (429, "3", "true")
    assert call.header("x-ratelimit-remaining-requests") == "4"
    assert used(limited, key) == 0


async def test_a_refused_request_has_a_record_that_names_the_limit() -> None:
    limited = limited_by(key_with(requests_per_minute=1))
    seen: list[RequestRecord] = []
    limited.gateway.observers.append(seen.append)
    for path, body in (("/v1/completions", {"prompt": "x"}), ("/v1/embeddings", {"input": "x", "model": "tiny"})):
        refused = await post(limited.app, path, body)
    error = refused.json["error"]
    assert (error["code"], error["param"]) == ("rate_limit_exceeded", "requests_per_minute")
    assert [(record.outcome, record.cause) for record in seen[1::2]] == [
        (Outcome.FINISHED, ""),
        (Outcome.REFUSED, "rate_limit_exceeded"),
    ]


@asynccontextmanager
async def running(limited: Limited, path: str = "/v1/completions", **body: Any) -> AsyncIterator[AsgiCall]:
    """Run a request inside the context, once the engine has it and its tokens are counted."""
    async with AsgiCall(limited.app, path, orjson.dumps(body)).running() as call:
        await limited.engine.first()
        await anyio.wait_all_tasks_blocked()
        yield call


async def test_a_client_that_leaves_gives_back_its_reservation() -> None:
    key = key_with(tokens_per_day=10_000, concurrent_requests=1)
    limited = limited_by(key, FakeEngine(say_nothing))
    async with running(limited, prompt="four", stream=True, max_tokens=1996) as call:
        assert ledger_of(limited, key).day.remaining(10_000, limited.limiter.clock().time) == 8000
        limited.engine.generations[0].put(Text(0, "a"))
        await call.sent(1)
        call.hang_up()
    assert used(limited, key) == 4


async def test_the_exact_count_of_the_prompt_replaces_the_estimate() -> None:
    key = key_with(tokens_per_day=10_000)
    limited = limited_by(key, FakeEngine(say_nothing))
    async with running(limited, prompt="twelve bytes", max_tokens=100):
        assert ledger_of(limited, key).day.remaining(10_000, limited.limiter.clock().time) == 10_000 - 112
        limited.engine.generations[0].put(Finished(0, "a", FinishReason.STOP, 1, 0))
    assert used(limited, key) == 13


async def test_a_request_without_a_length_reserves_the_rest_of_a_slot() -> None:
    key = key_with(tokens_per_day=10_000)
    limited = limited_by(key, FakeEngine(say_nothing))
    async with running(limited, "/v1/chat/completions", **BODIES["/v1/chat/completions"]) as call:
        remaining = ledger_of(limited, key).day.remaining(10_000, limited.limiter.clock().time)
        assert remaining == 10_000 - MODEL.context
        call.hang_up()


async def test_a_failed_request_gives_back_its_reservation() -> None:
    key, engine = key_with(tokens_per_day=10_000), FakeEngine(lambda generation: generation.fail(EngineError("died")))
    limited = limited_by(key, engine)
    assert (await post(limited.app, "/v1/completions", {"prompt": "four"})).status == 500
    assert used(limited, key) == 4


async def test_a_changed_key_has_its_new_limits_at_once() -> None:
    key = key_with(requests_per_minute=1)
    limited = limited_by(key)
    await post(limited.app, "/v1/completions", {"prompt": "x"})
    assert (await post(limited.app, "/v1/completions", {"prompt": "x"})).status == 429
    more = limited_by(replace(key, limits=replace(key.limits, requests_per_minute=100)))
    assert (await post(more.app, "/v1/completions", {"prompt": "x"})).status == 200
