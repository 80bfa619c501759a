"""A process that sends requests against the shared limits of one key, and prints a line once some have ended.

Its arguments: the URL of the database, and the number of requests, after which it ends; 0 goes on until it is killed.
"""

import sys
from contextlib import suppress

import anyio
import anyio.lowlevel

from gateway.middleware.errors import RefusedError
from gateway.storage.postgres import PostgresDatabase
from tests.gateway.limits.shared import limiter_on
from tests.gateway.limits.virtual import key_with, record_of

KEY = key_with(concurrent_requests=3, tokens_per_day=10**9)
BOUND, CHARGE, CLIENTS, SOME = 50, 7, 6, 20
LEASE = 1.5


async def main(url: str, requests: int) -> None:
    done = 0

    async def client() -> None:
        nonlocal done
        while not requests or done < requests:
            with suppress(RefusedError):
                async with limiter.admitted(record_of(KEY, prompt_tokens=CHARGE), BOUND):
                    await anyio.lowlevel.checkpoint()
                    done += 1
                if done == SOME:
                    sys.stdout.write("some\n")
                    sys.stdout.flush()
            await anyio.lowlevel.checkpoint()

    limiter = limiter_on(PostgresDatabase(url), None, LEASE)
    async with limiter.open(), anyio.create_task_group() as tasks:
        for _ in range(CLIENTS):
            tasks.start_soon(client)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]), backend="trio")
