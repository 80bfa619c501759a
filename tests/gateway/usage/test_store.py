"""The usage store is the same on SQLite, and on PostgreSQL where it is installed."""

from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from tests.gateway.usage.conformance import CASES, Case
from tests.postgres import installed, serving_postgres

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_store_in_sqlite(case: Case, tmp_path: Path) -> None:
    await case(str(tmp_path / "usage.db"))


async def test_the_store_in_postgresql() -> None:
    """One test for all cases, because the start of a server takes a second."""
    with serving_postgres(installed()) as url:
        for number, case in enumerate(CASES):
            await case(schema(url, f"usage_{number}"))


def schema(url: str, name: str) -> str:
    """Create a schema, and return the URL of a connection that uses it."""
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{url}&options={quote(f'-c search_path={name}')}"
