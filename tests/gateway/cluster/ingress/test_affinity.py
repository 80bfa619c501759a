"""Placement by prefixes: a conversation stays on its replica until that one is too busy, lost, or has given it up."""

from collections.abc import Collection
from contextlib import ExitStack
from typing import cast

import anyio
import anyio.lowlevel
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.cluster.ingress.affinity import LINGER, ModelRouter, PrefixPlacer
from gateway.cluster.ingress.figures import own_metrics
from gateway.cluster.ingress.opening import open_ingress
from gateway.cluster.ingress.placing import RoutingFigures
from gateway.cluster.ingress.reading import PromptReader
from gateway.cluster.ingress.replicas import ReplicaLostError
from gateway.cluster.request import Placement
from gateway.routing.report import HeldBlocks
from tests.backends import ON_ASYNCIO
from tests.gateway.application import NAME, settings_for
from tests.gateway.asgi import AsgiCall
from tests.gateway.cluster.ingress.fakes import FakeReplicas, answering, failing

pytestmark = pytest.mark.anyio

SLOTS = 2
KEY = "sk-a"
BLOCKS = (11, 12, 13)
TEXT = "Once upon a time. " * 30
READY = {"ready": 1.0}


def replicas_of(*names: str) -> FakeReplicas:
    return FakeReplicas(
        [answering(b"{}")], dict.fromkeys(names, READY), holding={name: HeldBlocks(1) for name in names}
    )


def router_of(replicas: FakeReplicas, name: str = "first") -> ModelRouter:
    return ModelRouter(replicas, SLOTS, lambda _model: None, name)


def placed(router: ModelRouter, blocks: Collection[int] = BLOCKS, without: Collection[str] = ()) -> Placement:
    with router.place(tuple(blocks), without) as one:
        return one.placement


async def test_a_conversation_stays_where_it_is() -> None:
    router = router_of(replicas_of(*"abcdefgh"))
    first = placed(router)
    assert first.replica
    assert {placed(router, [*BLOCKS, 14]) for _ in range(20)} == {first}


async def test_a_busy_replica_is_left() -> None:
    router = router_of(replicas_of("a", "b"))
    with ExitStack() as stack:
        first = stack.enter_context(router.place(BLOCKS, ())).placement
        assert stack.enter_context(router.place(BLOCKS, ())).placement == first
        assert stack.enter_context(router.place(BLOCKS, ())).placement != first
    assert placed(router).replica


async def test_requests_of_other_ingresses_count() -> None:
    replicas = replicas_of("a", "b")
    replicas.holding["a"].update(set(BLOCKS))
    router = router_of(replicas)
    await router.refresh()
    assert placed(router).replica == "a"
    replicas.known = {"a": {"requests": {"second": SLOTS}}, "b": READY}
    assert placed(router).replica == "b"
    replicas.known = {"a": {"requests": {"first": SLOTS}}, "b": READY}
    assert placed(router, [*BLOCKS, 14]).replica in "ab"


async def test_a_report_says_what_a_replica_holds_and_what_it_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("anyio.current_time", lambda: now)
    replicas = replicas_of("a", "b")
    router = router_of(replicas)
    for holder, other in ("ab", "ba", "ab"):
        replicas.holding[holder].update(set(BLOCKS))
        replicas.holding[other].update(set())
        now += LINGER
        await router.refresh()
        assert {placed(router).replica for _ in range(20)} == {holder}


async def test_a_prompt_that_a_replica_does_not_hold_is_forgotten_without_further_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    router = router_of(replicas_of("a"))
    placed(router)
    assert router.figures.held == {"a": len(BLOCKS)}
    later = anyio.current_time() + LINGER
    monkeypatch.setattr(anyio, "current_time", lambda: later)
    await router.refresh()
    assert router.figures.held == {"a": 0}


async def test_a_replica_that_does_not_answer_is_asked_again() -> None:
    replicas = replicas_of("a", "b")
    held = replicas.holding.pop("a")
    router = router_of(replicas)
    await router.refresh()
    held.update(set(BLOCKS))
    replicas.holding["a"] = held
    await router.refresh()
    assert {placed(router).replica for _ in range(20)} == {"a"}


async def test_a_lost_replica_is_left_out() -> None:
    router = router_of(replicas_of("a", "b"))
    first = placed(router)
    assert placed(router, without={first.replica}).replica != first.replica
    assert placed(router, without={"a", "b"}) == Placement()


async def test_only_replicas_that_are_ready_are_chosen() -> None:
    replicas = replicas_of("a", "b")
    router = router_of(replicas)
    replicas.known = {"a": {"ready": 0.0}, "b": READY}
    assert {placed(router).replica for _ in range(9)} == {"b"}
    replicas.known = {}
    assert placed(router) == Placement()


async def test_a_request_that_another_replica_has_taken_counts_there() -> None:
    router = router_of(replicas_of("a", "b"))
    with router.place(BLOCKS, ()) as one:
        (other,) = {"a", "b"} - {one.placement.replica}
        one.accepted(other)
    assert {placed(router).replica for _ in range(20)} == {other}


@ON_ASYNCIO  # Ray runs it
async def test_the_ingress_sends_the_next_turn_to_the_same_replica_and_a_replay_to_another() -> None:
    replicas = replicas_of(*"abcd")
    replicas.holding["d"].update({1})
    key = {"authorization": f"Bearer {KEY}"}
    async with (
        open_ingress(settings_for(api_key=(KEY,)), {NAME: replicas}, b"") as app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", headers=key) as client,
    ):
        while f'replica="d",model_name="{NAME}"}} 1' not in (await client.get("/metrics")).text:
            await anyio.lowlevel.checkpoint()
        replicas.asked.clear()
        replicas.answers[:] = [*[answering(b"{}")] * 8, failing(error=ReplicaLostError("died")), answering(b"{}")]
        for turn in range(1, 10):
            response = await client.post("/v1/completions", json={"prompt": TEXT * turn})
            assert response.status_code == 200
    *turns, lost, again = (placement.replica for _, placement in replicas.asked)
    assert {*turns, lost} == {lost} != {again}


@ON_ASYNCIO
async def test_a_request_without_a_valid_key_is_refused_before_its_body_is_read() -> None:
    replicas = replicas_of("a")
    async with open_ingress(settings_for(api_key=(KEY,)), {NAME: replicas}, b"") as app:
        for headers in ({}, {"authorization": "Bearer sk-b"}):
            call = AsgiCall(app, "/v1/completions", b"{}", headers={**headers, "content-length": "2"})
            assert (await call.run()).status == 401
            assert call.unread
        assert (await AsgiCall(app, "/livez", method="GET").run()).status == 200
    assert replicas.asked == []


async def test_the_figures_are_those_of_the_choices_and_of_the_replicas() -> None:
    replicas = replicas_of("a", "b")
    replicas.holding["a"].update({1, 2})
    placer = PrefixPlacer({NAME: replicas}, {NAME: SLOTS}, PromptReader(settings_for(), b""))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(placer.run)
        while not placer.figures[NAME].held.get("a"):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    for blocks in ((1, 2, 3), (5,), ()):
        with placer.place(NAME, blocks, ()) as one:
            one.accepted(one.placement.replica)
    text = own_metrics({"a": 1, "b": 0}, {NAME: 3}, placer.figures)
    label = f'model_name="{NAME}"'
    assert f'llama_gateway_routed_requests_total{{{label},reason="prefix"}} 1\n' in text
    assert f'llama_gateway_routed_requests_total{{{label},reason="load"}} 2\n' in text
    assert f'llama_gateway_routed_blocks{{replica="a",{label}}} ' in text
    assert f"llama_gateway_ingress_waiting_requests{{{label}}} 3\n" in text
    assert 'llama_gateway_replica_up{replica="b"} 0\n' in text


async def test_the_metrics_can_be_read_whatever_the_name_of_a_model_is() -> None:
    name = 'a "b" \\c\n'
    families = text_string_to_metric_families(own_metrics({}, {name: 3}, {name: RoutingFigures(held={"x": 1})}))
    samples = [sample for family in families for sample in family.samples]
    assert [sample.labels["model_name"] for sample in samples] == [name] * 4


async def test_a_defect_of_one_replica_does_not_end_the_questions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.cluster.ingress.affinity.PERIOD", 0)
    replicas = replicas_of("a", "b")
    whole = replicas.holding.pop("a")
    whole.update({1, 2})
    replicas.holding["a"] = cast("HeldBlocks", None)
    placer = PrefixPlacer({NAME: replicas}, {NAME: SLOTS}, PromptReader(settings_for(), b""))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(placer.run)
        while "cannot be asked" not in caplog.text:
            await anyio.lowlevel.checkpoint()
        replicas.holding["a"] = whole
        while not placer.figures[NAME].held.get("a"):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
