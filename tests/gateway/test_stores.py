"""Stores that a cluster needs are tried once, before its processes start."""

from pathlib import Path

import pytest

from gateway.storage.database import StorageError
from gateway.stores import check_stores
from tests.gateway.application import settings_for

pytestmark = pytest.mark.anyio

NOWHERE = "postgresql://127.0.0.1:1/none"


@pytest.mark.parametrize(
    ("flag", "name"), [("--keys", "keys"), ("--usage", "usage"), ("--responses-store", "responses_store")]
)
async def test_a_store_that_cannot_be_used_is_named(flag: str, name: str) -> None:
    with pytest.raises(StorageError, match=f"{flag}: the store cannot be used: .*refused"):
        await check_stores(settings_for(**{name: NOWHERE}))


async def test_stores_that_can_be_used_are_closed_again(tmp_path: Path) -> None:
    await check_stores(settings_for(keys=str(tmp_path / "keys.db")))
    await check_stores(settings_for())
