"""Connections to PostgreSQL of the parts of a cluster, by which an operator sets `max_connections`."""

import anyio
import psycopg
import pytest

from gateway.cli import read_settings
from gateway.cluster.ingress.opening import open_ingress
from gateway.cluster.serving import open_replica
from gateway.serving.prefixes import HeldPrefixes
from gateway.settings import Settings
from tests.backends import ON_ASYNCIO
from tests.models import model_path

pytestmark = [pytest.mark.anyio, ON_ASYNCIO]


def connections(url: str) -> int:
    """Return the number of connections of gateways."""
    with psycopg.connect(url) as own:
        query = """SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'llama-gateway' AND datname = current_database()"""
        (number,) = own.execute(query).fetchone() or (0,)
        return int(number)


async def all_end(url: str) -> None:
    """Wait until PostgreSQL has seen the ends of all connections, which come after the gateways have closed them."""
    with anyio.fail_after(20):
        while connections(url):  # noqa: ASYNC110 - PostgreSQL is all there is to ask
            await anyio.sleep(0.01)


def settings_with(*flags: str) -> Settings:
    return read_settings(["serve", "--model", str(model_path()), "--threads", "1", "--slots", "1", *flags], {})


async def test_a_replica_has_three_connections_for_keys_and_two_for_responses(url: str) -> None:
    async with open_replica(settings_with("--keys", url), HeldPrefixes(b"")):
        assert connections(url) == 3
    await all_end(url)
    async with open_replica(settings_with("--responses-store", url), HeldPrefixes(b"")):
        assert connections(url) == 2
    await all_end(url)


async def test_an_ingress_has_one_connection_for_keys_and_one_for_responses(url: str) -> None:
    async with open_ingress(settings_with("--keys", url), {}, b""):
        assert connections(url) == 1
    await all_end(url)
    async with open_ingress(settings_with("--responses-store", url), {}, b""):
        assert connections(url) == 1
    await all_end(url)
