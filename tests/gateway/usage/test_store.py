"""The usage store is the same on SQLite, and on PostgreSQL where it is installed."""

import pytest

from tests.gateway.usage.conformance import CASES, Case
from tests.repeat import every_case


@every_case
@pytest.mark.anyio
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_stores_do_the_same(case: Case, store_place: str) -> None:
    await case(store_place)
