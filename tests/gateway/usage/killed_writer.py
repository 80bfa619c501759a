"""A process that writes usage rows until it is killed. Its arguments: the database, and the number of rows."""

import sys

import anyio
import anyio.lowlevel

from gateway.usage.store import usage_store
from gateway.usage.writer import BATCH, UsageWriter
from tests.gateway.limits.virtual import key_with, record_of


async def main(place: str, rows: int) -> None:
    store = usage_store(place)
    await store.create()
    writer = UsageWriter(store, interval=1e9)
    async with writer.open():
        for _ in range(rows):
            writer.observe(record_of(key_with(), prompt_tokens=1))
        while writer.waiting >= BATCH:
            await anyio.lowlevel.checkpoint()
        sys.stdout.write(f"{writer.waiting}\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


anyio.run(main, sys.argv[1], int(sys.argv[2]), backend="trio")
