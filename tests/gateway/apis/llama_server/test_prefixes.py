"""`GET /prefixes`: reports of the prompts that an engine holds."""

from typing import Any, cast

import anyio
import orjson
import pytest

from engine import Engine, Unavailable
from gateway.app import Equipment, Gateway
from gateway.routing.blocks import BLOCK_BYTES, Blocks, PromptScope, text_blocks, token_blocks
from gateway.routing.report import Report
from gateway.serving import prefixes
from gateway.serving.prefixes import HeldPrefixes
from tests.gateway.application import NAME, app_of, gateway_of
from tests.gateway.asgi import AsgiCall, get, post
from tests.gateway.fake_engine import FakeEngine

pytestmark = pytest.mark.anyio

SECRET = "a long secret".ljust(64, ".")
PROMPT = "".join(map(str, range(300)))


async def report(gateway: Gateway, query: str = "") -> Report:
    call = await AsgiCall(gateway.app, "/prefixes", method="GET", query=query).run()
    assert call.status == 200, call.content
    return Report.from_json(call.json)


async def complete(gateway: Gateway, key: str = "", **body: Any) -> None:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    content = orjson.dumps({"prompt": PROMPT, **body})
    call = await AsgiCall(gateway.app, "/v1/completions", content, headers=headers).run()
    assert call.status == 200, call.content


def blocks(partition: str = "", prompt: str = PROMPT) -> Blocks:
    return text_blocks(prompt, PromptScope(NAME, partition), SECRET.encode())


async def test_a_prompt_is_reported_by_the_hashes_that_routers_compute() -> None:
    gateway = gateway_of(FakeEngine(), prefix_secret=SECRET)
    await complete(gateway)
    first = await report(gateway)
    assert (first.base, first.sequence) == (0, 1)
    assert first.held == set(blocks())
    await complete(gateway, prompt="y" * BLOCK_BYTES)
    second = await report(gateway, f"since={first.sequence}")
    assert (second.base, second.dropped) == (1, frozenset())
    assert second.held == set(blocks(prompt="y" * BLOCK_BYTES))
    assert second.epoch == first.epoch


async def test_what_the_engine_gave_up_is_dropped() -> None:
    engine = FakeEngine()
    gateway = gateway_of(engine, prefix_secret=SECRET)
    await complete(gateway)
    await report(gateway)
    engine.held_share = 0.5
    half = await report(gateway)
    assert half.held == set(blocks()[: len(blocks()) // 2])
    engine.refusal = Unavailable("gone")
    assert (await report(gateway)).held == frozenset()


async def test_an_engine_that_hangs_is_named_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "ASK_SECONDS", 0.0)
    held, hung = HeldPrefixes(SECRET.encode()), FakeEngine()
    hung.hangs = True
    labels = [held.add(name, lambda: cast("Engine", hung)) for name in ("b", "c")]  # they live as long as their models
    gateway = gateway_of(FakeEngine(), equipment=Equipment(prefixes=held))
    await complete(gateway)
    with anyio.fail_after(60):
        found, unanswered = await held.report()
    assert found.held == set(blocks())
    assert (len(labels), unanswered) == (2, ["b", "c"])


async def test_token_prompts_and_all_prompts_of_a_request_are_reported() -> None:
    gateway = gateway_of(FakeEngine(), prefix_secret=SECRET)
    await complete(gateway, prompt=[list(range(100)), list(range(100, 200))])
    both = [token_blocks(range(start, start + 100), PromptScope(NAME), SECRET.encode()) for start in (0, 100)]
    assert (await report(gateway)).held == {*both[0], *both[1]}


async def test_a_report_that_is_too_large_has_the_latest_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "MOST_BLOCKS", 2)
    gateway = gateway_of(FakeEngine(), prefix_secret=SECRET)
    latest = "y" * BLOCK_BYTES
    for prompt in (PROMPT, "z" * BLOCK_BYTES, latest):
        await complete(gateway, prompt=prompt)
    assert (await report(gateway)).held == {*blocks(prompt="z" * BLOCK_BYTES), *blocks(prompt=latest)}


async def test_callers_of_different_partitions_share_no_block() -> None:
    gateway = gateway_of(FakeEngine(), prefix_secret=SECRET, partition_cache=True)
    seen: set[int] = set()
    for key in ("one", "two"):
        await complete(gateway, key)
        new = (await report(gateway)).held - seen
        assert len(new) == len(blocks())
        seen |= new
    assert not seen & set(blocks())


async def test_a_salt_is_a_partition() -> None:
    gateway = gateway_of(FakeEngine(), prefix_secret=SECRET)
    await complete(gateway, cache_salt="salt")
    assert (await report(gateway)).held == set(blocks("salt"))


async def test_prompts_that_are_not_shared_have_no_label() -> None:
    engine = FakeEngine()
    gateway = gateway_of(engine, prefix_secret=SECRET)
    await post(gateway.app, "/completion", {"prompt": PROMPT, "cache_prompt": False})
    await post(gateway.app, "/infill", {"input_prefix": PROMPT, "input_suffix": ""})
    assert (await report(gateway)).held == frozenset()


async def test_without_a_secret_nothing_is_labelled_or_reported() -> None:
    engine = FakeEngine()
    gateway = gateway_of(engine)
    await complete(gateway)
    assert engine.generations[0].request.label is None
    assert (await get(gateway.app, "/prefixes")).status == 501


@pytest.mark.parametrize("since", ["-1", "x", "²", "1" * 19])
async def test_an_unknown_state_is_refused_or_answered_with_everything(since: str) -> None:
    app = app_of(FakeEngine(), prefix_secret=SECRET)
    call = await AsgiCall(app, "/prefixes", method="GET", query=f"since={since}").run()
    assert (call.status, call.json["error"]["param"]) == (400, "since")
    assert (await AsgiCall(app, "/prefixes", method="GET", query="since=5").run()).json["base"] == 0


async def test_reports_are_on_the_port_for_metrics_if_there_is_one() -> None:
    gateway = gateway_of(FakeEngine(), prefix_secret=SECRET, metrics_port=0)
    assert (await get(gateway.metrics_app, "/prefixes")).status == 200
    with pytest.raises(AssertionError, match="not described to answer 404"):
        await get(gateway.app, "/prefixes")


async def test_reports_for_the_own_process_are_not_shown() -> None:
    held = HeldPrefixes(SECRET.encode())
    gateway = gateway_of(FakeEngine(), equipment=Equipment(prefixes=held))
    await complete(gateway)
    found, _ = await held.report()
    assert found.held == set(blocks())
    assert (await AsgiCall(gateway.app, "/prefixes", method="GET").run()).status == 501
