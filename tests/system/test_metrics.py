"""Metrics of the whole program: what a scraper sees while requests come, leave and are lost."""

import os
import random
import signal

import anyio
import pytest

from engine import EngineState, Supervision
from gateway.server.aside import serving_aside
from gateway.server.listen import listen
from tests.gateway.metrics.scraped import Scrape, scrape
from tests.gateway.server.sockets import Client, get
from tests.system.answers import STREAMED
from tests.system.served import GUARD, MANY, PASS, Served, completion, post, serving

pytestmark = pytest.mark.anyio

RESTART = Supervision(backoff_first=0.3, stall_timeout=10 * GUARD)


async def read(served: Served) -> Scrape:
    answer = await served.answer(get("/metrics"))
    assert answer.status == 200
    return scrape(answer.body)


def check_identity(found: Scrape) -> None:
    """Check that the counters of one scrape agree with each other."""
    outcomes = ("finished", "failed", "cancelled")
    refused = found.value("llama_gateway_request_outcomes_total", outcome="refused")
    ended = sum(found.value("llama_gateway_request_outcomes_total", outcome=outcome) for outcome in outcomes)
    assert found.value("llama_gateway_requests_accepted_total") == ended + found.value("llama_gateway_requests_running")
    begun = found.value("llama_gateway_requests_total")
    assert begun == refused + ended + found.value("llama_gateway_requests_in_progress")


async def come_and_go(served: Served, chance: random.Random, number: int) -> None:
    for turn in range(4):
        client = served.client()
        kind = chance.choice(["stay", "leave", "stream", "refused", "embed"])
        if kind == "embed":
            await client.send(post(f"{number}-{turn}", "/v1/embeddings", model="default", input=["x"]))
        else:
            extra = STREAMED if kind == "stream" else {}
            prompt = "x" * (9000 if kind == "refused" else 100)
            await client.send(completion(f"{number}-{turn}", prompt=prompt, max_tokens=10, **extra))
        if kind == "leave":
            await anyio.sleep(0.001)
        else:
            await client.answer()
        client.close()


async def test_accepted_requests_are_finished_failed_cancelled_or_running_in_every_scrape() -> None:
    async with serving(seconds_per_pass=0.002, slots=3, queue_limit=8, context=8192, grace=0.0) as served:

        async def scrape_often() -> None:
            while True:
                check_identity(await read(served))

        async with anyio.create_task_group() as scraping:
            scraping.start_soon(scrape_often)
            with anyio.fail_after(GUARD):
                async with anyio.create_task_group() as clients:
                    for number in range(6):
                        clients.start_soon(come_and_go, served, random.Random(number), number)
                await served.server.count_falls_to(1)  # that of the scraper
            scraping.cancel_scope.cancel()
        await served.connections_fall_to(0)
        found = await read(served)
    check_identity(found)
    assert found.value("llama_gateway_requests_in_progress") == found.value("llama_gateway_requests_running") == 0
    assert found.value("llama_gateway_requests_total") == 24
    cancelled = found.value("llama_gateway_request_outcomes_total", outcome="cancelled")
    assert found.value("llama_gateway_cancellations_total", cause="client_left") == cancelled
    assert found.value("llama_gateway_wasted_tokens_count") == cancelled


async def test_tokens_and_times_of_a_stream() -> None:
    prompt, tokens = "x" * 200, 20
    async with serving(seconds_per_pass=0.0, slots=2) as served:
        for _ in range(2):
            await served.answer(completion("ask", prompt=prompt, max_tokens=tokens, **STREAMED))
        whole = await served.answer(completion("whole", prompt="y", max_tokens=tokens))
        found = await read(served)
    assert whole.status == 200
    assert found.value("vllm:generation_tokens_total") == 3 * tokens
    assert found.value("vllm:prompt_tokens_total") == 2 * len(prompt) + 1
    assert found.value("vllm:prompt_tokens_cached_total") == found.value("vllm:prefix_cache_hits_total") > 0
    assert found.value("vllm:inter_token_latency_seconds_count") == 3 * (tokens - 1)
    assert found.value("vllm:time_to_first_token_seconds_count") == 3
    computed = found.value("vllm:prompt_tokens_total") - found.value("vllm:prompt_tokens_cached_total")
    assert found.value("vllm:iteration_tokens_total_sum") == computed + 3 * (tokens - 1)
    assert found.value("vllm:request_success_total", finished_reason="length") == 3


async def test_gauges_follow_the_running_requests() -> None:
    async with serving(seconds_per_pass=PASS, slots=1, grace=0.0) as served:
        clients = [served.client() for _ in range(3)]
        for client in clients:
            await client.send(completion("runs", max_tokens=MANY))
        await served.until(
            lambda _, metrics: metrics.waiting == 2 and served.engine.telemetry.metrics.active_tokens > 0
        )
        found = await read(served)
        for client in clients:
            client.close()
        await served.connections_fall_to(0)
        idle = await read(served)
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "llama_gateway_requests_in_progress")
    assert [found.value(name) for name in names] == [1, 2, 3]
    assert [idle.value(name) for name in names] == [0, 0, 0]
    assert found.value("vllm:kv_cache_usage_perc") > 0 == idle.value("vllm:kv_cache_usage_perc")


async def test_counters_outlive_the_engine_and_a_scrape_waits_for_none() -> None:
    async with serving(seconds_per_pass=PASS, slots=1, supervision=RESTART) as served:
        await served.answer(completion("first", max_tokens=10))
        before = await read(served)
        os.kill(served.engine_pid, signal.SIGKILL)
        with anyio.fail_after(GUARD):
            while served.engine.status.state is EngineState.READY:
                await served.engine.status_changed()
        client = await served.send(completion("waits", max_tokens=10))
        with anyio.fail_after(GUARD):
            while not (down := await read(served)).value("vllm:num_requests_waiting"):
                pass
        assert (await client.answer()).status == 200
        client.close()
        after = await read(served)
    generated = [found.value("vllm:generation_tokens_total") for found in (before, down, after)]
    assert generated == [10, 10, 20]
    assert down.value("llama_gateway_engine_ready") == 0
    assert after.value("llama_gateway_engine_restarts_total") == 1
    check_identity(down)


async def test_a_stopped_engine_delays_no_scrape() -> None:
    async with serving(seconds_per_pass=PASS, slots=1, grace=0.0) as served:
        client = await served.send(completion("runs", max_tokens=MANY, stream=True))
        await client.see(b'"text":"')
        os.kill(served.engine_pid, signal.SIGSTOP)
        try:
            found = await read(served)
        finally:
            os.kill(served.engine_pid, signal.SIGCONT)
        client.close()
    assert found.value("vllm:num_requests_running") == 1


async def test_a_port_of_its_own_shows_the_metrics_while_the_server_drains() -> None:
    sockets = listen("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    async with serving(seconds_per_pass=PASS, grace=GUARD) as served:
        client = await served.send(completion("last", max_tokens=MANY, stream=True))
        await client.see(b'"text":"')
        async with serving_aside(served.gateway.metrics_app, sockets, anyio.current_time):
            served.shutdown.set()
            with anyio.fail_after(GUARD):
                await served.draining.wait()
                scraper = Client(port)
                await scraper.send(get("/metrics"))
                found = scrape((await scraper.answer()).body)
            scraper.close()
            client.close()
    assert found.value("llama_gateway_draining") == 1
    assert found.value("llama_gateway_requests_in_progress") == 1
