"""A process that is killed loses the rows of its last second, and fewer than one batch."""

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.usage.store import usage_store
from gateway.usage.writer import BATCH

pytestmark = pytest.mark.anyio

WRITER = "tests.gateway.usage.killed_writer"
ROOT = Path(__file__).parents[3]


async def test_a_killed_process_loses_less_than_one_batch(place: str) -> None:
    rows = 3 * BATCH + BATCH // 2
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs meanwhile
        [sys.executable, "-m", WRITER, place, str(rows)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        waiting = int(process.stdout.readline())
        process.kill()
    store = usage_store(place)
    await store.create()
    charged = await store.charged(0, 1e12)
    assert rows - waiting <= charged["key_1"] <= rows, "what waited may have been on its way"
    assert waiting < BATCH
    await store.close()
