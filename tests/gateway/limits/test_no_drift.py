"""100,000 random requests: the ledger holds exactly what the open ones reserve, and what the ended ones computed."""

import random
from collections import Counter
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import pytest

from gateway.keys.key import Key
from gateway.limits.budget import month
from gateway.limits.limiter import Correct
from gateway.limits.memory_limiter import MemoryLimiter
from gateway.middleware.caller import Caller
from gateway.middleware.errors import RefusedError
from gateway.serving.records import Operation, Outcome, RequestRecord
from tests.gateway.limits.virtual import VirtualClock, key_with
from tests.repeat import thorough

REQUESTS = 100_000
DAY = 86_400
KEYS = [
    key_with("free"),
    key_with("rates", requests_per_minute=60, tokens_per_minute=9_000, concurrent_requests=8),
    key_with("budgets", tokens_per_day=400_000, tokens_per_month=5_000_000),
    key_with("all", requests_per_minute=90, tokens_per_minute=9_000, tokens_per_day=500_000, concurrent_requests=5),
]


def nothing(_draw: random.Random, _record: RequestRecord) -> None:
    """Compute nothing, before the engine has begun."""


def prefill(draw: random.Random, record: RequestRecord) -> None:
    record.prompt_tokens = int(draw.random() * 900)
    record.cached_tokens = int(draw.random() * record.prompt_tokens)


def decode(draw: random.Random, record: RequestRecord) -> None:
    prefill(draw, record)
    record.completion_tokens = int(draw.random() * 600)


PHASES = [("intake", nothing), ("queued", nothing), ("prefill", prefill), ("decode", decode), ("done", decode)]
"""Tokens that a request has computed at its end in each phase."""


@dataclass
class Model:
    """The books of one key, kept plainly."""

    key: Key
    caller: Caller
    open: list[tuple[AbstractAsyncContextManager[Correct], RequestRecord, int]] = field(default_factory=list)
    reserved: int = 0
    days: Counter[int] = field(default_factory=Counter)
    refused: int = 0

    def check(self, limiter: MemoryLimiter) -> None:
        """Compare with the ledger. Its budgets are read against a limit so large that nothing is cut off."""
        ledger, now, huge = limiter.ledger(self.key.id), limiter.clock(), 10**15
        assert ledger.running == len(self.open)
        first, today = (int(start // DAY) for start in (month(now.time)[0], now.time))
        assert ledger.day.remaining(huge, now.time) == huge - self.reserved - self.days[today]
        in_month = sum(self.days[date] for date in range(first, today + 1))
        assert ledger.month.remaining(huge, now.time) == huge - self.reserved - in_month


def bound_of(draw: random.Random) -> int:
    return 1 + int(draw.random() * 3000)


async def admit(limiter: MemoryLimiter, model: Model, draw: random.Random) -> None:
    record, bound = RequestRecord(caller=model.caller, model="tiny", operation=Operation.CHAT), bound_of(draw)
    context = limiter.admitted(record, bound)
    try:
        correct = await context.__aenter__()
    except RefusedError:
        model.refused += 1
        return
    if draw.random() < 0.8:
        bound = bound_of(draw)
        correct(bound)
    model.open.append((context, record, bound))
    model.reserved += bound


async def end(limiter: MemoryLimiter, model: Model, draw: random.Random) -> None:
    context, record, bound = model.open.pop(int(draw.random() * len(model.open)))
    record.phase, compute = PHASES[int(draw.random() * len(PHASES))]
    record.outcome = Outcome.FINISHED if record.phase == "done" else Outcome.CANCELLED
    compute(draw, record)
    record.wasted_tokens = int(draw.random() * 100)
    model.reserved -= bound
    charge = record.prompt_tokens - record.cached_tokens + record.completion_tokens
    model.days[int(limiter.clock().time // DAY)] += charge
    error = RuntimeError("the request failed") if draw.random() < 0.1 else None
    if error is None:
        await context.__aexit__(None, None, None)
    else:
        assert not await context.__aexit__(type(error), error, None)


@thorough
@pytest.mark.anyio
async def test_100_000_random_requests_leave_no_drift() -> None:
    draw, clock = random.Random(13), VirtualClock()
    limiter = MemoryLimiter(clock)
    models = [Model(key, Caller(request_id="req", key=key)) for key in KEYS]
    for number in range(REQUESTS):
        model = draw.choice(models)
        await admit(limiter, model, draw)
        while model.open and (len(model.open) > 12 or draw.random() < 0.55):
            await end(limiter, model, draw)
        clock.advance(draw.expovariate(1 / 30))
        if number % 100 == 0:
            model.check(limiter)
    for model in models:
        while model.open:
            await end(limiter, model, draw)
        model.check(limiter)
        assert model.reserved == 0
    assert all(model.refused for model in models[1:])
    clock.advance(3600)
    for key in KEYS:
        ledger, tick = limiter.ledger(key.id), clock.tick
        assert ledger.tokens.remaining(9_000, tick) == 9_000
        assert ledger.requests.remaining(60, tick) == 60
