"""Prefixes on disk outlive the engine process: tokens computed after a kill and after a restart are counted."""

import os
import signal
from functools import partial
from pathlib import Path

import anyio
import pytest

from engine import EngineState
from tests.system.served import GUARD, Served, ask, serving

pytestmark = pytest.mark.anyio

SYSTEM = [300 + 7 * at % 200 for at in range(400)]
"""Tokens, of which a second request has all."""
NEW = 7


async def computed(served: Served, prompt: list[int]) -> int:
    """Return the number of prompt tokens that the engine computes for a prompt."""
    before = (await served.until_idle()).computed_prompt_tokens
    answer = await ask(served, prompt=prompt, max_tokens=2)
    count = (await served.until_idle()).computed_prompt_tokens - before
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == len(prompt) - count
    return count


def files_of(root: Path) -> list[Path]:
    return list(root.glob("*/*.prefix"))


async def test_only_new_tokens_are_computed_after_a_kill_and_after_a_restart(tmp_path: Path) -> None:
    async with serving(prefix_dir=tmp_path) as served:
        assert await computed(served, SYSTEM) == len(SYSTEM)
        await served.until(lambda *_: bool(files_of(tmp_path)))
        os.kill(served.engine_pid, signal.SIGKILL)
        with anyio.fail_after(GUARD):
            while (served.engine.status.restarts, served.engine.status.state) != (1, EngineState.READY):
                await served.engine.status_changed(served.engine.status)
        assert await computed(served, [*SYSTEM, *range(NEW)]) == NEW
    async with serving(prefix_dir=tmp_path) as served:
        assert await computed(served, [*SYSTEM, *range(100, 100 + NEW)]) == NEW


async def test_a_clean_shutdown_writes_what_every_slot_has_just_computed(tmp_path: Path) -> None:
    async with serving(prefix_dir=tmp_path) as served, anyio.create_task_group() as tasks:
        for at in range(3):
            tasks.start_soon(partial(ask, served, prompt=[300 + at, *SYSTEM], max_tokens=1))
    assert len(files_of(tmp_path)) == 3


async def test_an_unusable_directory_does_not_stop_the_service(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no directory")
    async with serving(prefix_dir=file) as served:
        assert await computed(served, SYSTEM) == len(SYSTEM)
        assert await computed(served, SYSTEM) == 1
