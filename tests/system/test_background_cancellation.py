"""Background responses: freed by their cancel or the server's end, and not by their client's hang-up."""

from typing import Any

import anyio
import orjson
import pytest

from tests.repeat import every_case
from tests.system.served import GUARD, Served, post, serving
from tests.system.test_cancellation import PASS, no_row_is_carried
from tests.system.test_chat_cancellation import PHASES, TEMPLATE

pytestmark = [pytest.mark.anyio, every_case]

PATH = "/v1/responses"


async def start(served: Served, phase: str) -> str:
    """Start a background response and hang up; return its path once it is in that phase."""
    body = {"background": True, "ignore_eos": True, **PHASES[PATH][phase]}
    answer = await served.answer(post("starter", PATH, **body))
    await served.until_in(phase, "starter")
    return f"{PATH}/{orjson.loads(answer.body)['id']}"


async def answered(served: Served, request: bytes) -> dict[str, Any]:
    answer = await served.answer(request)
    assert answer.status == 200, answer.body
    decoded: dict[str, Any] = orjson.loads(answer.body)
    return decoded


@pytest.mark.parametrize("phase", PHASES[PATH])
async def test_a_background_response_is_freed_by_its_cancel_and_not_by_its_client(phase: str) -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0, chat_template=TEMPLATE) as served:
        path = await start(served, phase)
        cancelled = await answered(served, post("cancels", f"{path}/cancel"))
        assert cancelled["status"] == "cancelled"
        await served.until_idle()
        await no_row_is_carried(served, 0)
        assert await answered(served, f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()) == cancelled


async def test_the_servers_end_frees_a_background_response() -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0, chat_template=TEMPLATE) as served:
        await start(served, "decode")
        served.shutdown.set()
        with anyio.fail_after(GUARD):
            await served.stopped.wait()
        await served.until_idle()
