"""The usage store is the same on SQLite, and on PostgreSQL where it is installed."""

from pathlib import Path

import pytest

from tests.gateway.usage.conformance import CASES, Case
from tests.postgres import programs, schema, serving_postgres

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_store_in_sqlite(case: Case, tmp_path: Path) -> None:
    await case(str(tmp_path / "usage.db"))


async def test_the_store_in_postgresql() -> None:
    """One test for all cases, because the start of a server takes a second."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with serving_postgres(found) as url:
        for number, case in enumerate(CASES):
            await case(schema(url, f"usage_{number}"))
