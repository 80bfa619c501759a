"""Random requests: two gateways on PostgreSQL admit, refuse and charge as one limiter in memory does."""

import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import pytest

from gateway.limits.limiter import Correct, Limiter
from gateway.limits.memory_limiter import MemoryLimiter
from gateway.middleware.errors import Problem, RefusedError
from gateway.serving.records import RequestRecord
from tests.backends import ON_TRIO
from tests.gateway.limits.shared import benches
from tests.gateway.limits.virtual import key_with, record_of
from tests.repeat import TIMES, thorough

pytestmark = [pytest.mark.anyio, thorough]

REQUESTS = 300 * TIMES
LEASE = 10**9
KEYS = [
    key_with("rates", requests_per_minute=60, tokens_per_minute=9_000),
    key_with("budgets", tokens_per_day=400_000, tokens_per_month=2_000_000, concurrent_requests=4),
    key_with("all", requests_per_minute=90, tokens_per_minute=9_000, tokens_per_day=500_000, concurrent_requests=5),
    key_with("free"),
]
Open = tuple[AbstractAsyncContextManager[Correct], Correct]


async def begin(limiter: Limiter, record: RequestRecord, bound: int) -> Open | Problem:
    context = limiter.admitted(record, bound)
    try:
        return context, await context.__aenter__()
    except RefusedError as error:
        return error.problem


async def begin_alike(limiters: Sequence[Limiter], record: RequestRecord, bound: int) -> list[Open]:
    """Send a request to all limiters. They must all admit it, or all refuse it in the same way."""
    results = [await begin(limiter, record, bound) for limiter in limiters]
    opened = [result for result in results if not isinstance(result, Problem)]
    assert len(opened) in {0, len(results)}, results
    assert opened or all(result == results[0] for result in results)
    return opened


@ON_TRIO
async def test_random_requests_are_admitted_or_refused_alike(url: str) -> None:
    draw = random.Random(17)
    async with benches(url, 2, lease=LEASE) as shared:
        memory, clock = MemoryLimiter(shared[0].clock), shared[0].clock
        running: list[tuple[RequestRecord, list[Open]]] = []
        refusals = 0
        for _ in range(REQUESTS):
            bench, key = draw.choice(shared), draw.choice(KEYS)
            record = record_of(key)
            opened = await begin_alike([memory, bench.limiter], record, draw.randrange(1, 4000))
            refusals += not opened
            if opened:
                exact = draw.randrange(1, 4000)
                for _, correct in opened:
                    correct(exact)
                running.append((record, opened))
            while running and draw.random() < 0.5:
                record, opened = running.pop(draw.randrange(len(running)))
                record.prompt_tokens = draw.randrange(5000)
                for context, _ in opened:
                    await context.__aexit__(None, None, None)
            for one in shared:
                await one.settled()
            clock.advance(round(8 * draw.expovariate(1 / 20)) / 8)  # exact on both clocks
        assert refusals > REQUESTS // 20
        for _, opened in running:
            for context, _ in opened:
                await context.__aexit__(None, None, None)
