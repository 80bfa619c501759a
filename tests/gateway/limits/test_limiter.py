"""The limiter in memory. `test_shared.py` runs the same cases on PostgreSQL."""

import anyio
import anyio.lowlevel
import pytest

from gateway.limits.limiter import charge_of
from gateway.limits.memory_limiter import MemoryLimiter
from tests.gateway.limits.conformance import CASES, Bench, Case
from tests.gateway.limits.virtual import VirtualClock, record_of

pytestmark = pytest.mark.anyio


def test_a_charge_is_what_was_computed_for_the_client() -> None:
    record = record_of(None, prompt_tokens=100, cached_tokens=60, completion_tokens=7, wasted_tokens=5)
    assert charge_of(record) == 47


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_limiter_in_memory(case: Case) -> None:
    clock = VirtualClock()
    await case(Bench(MemoryLimiter(clock), clock, anyio.lowlevel.checkpoint))
