"""Background responses: freed by their cancel or the server's end, and not by their client's hang-up."""

import anyio
import pytest

from tests.gateway.server.sockets import get
from tests.repeat import every_case
from tests.system.served import GUARD, PASS, Served, post, serving
from tests.system.test_cancellation import no_row_is_carried
from tests.system.test_chat_cancellation import PHASES, TEMPLATE

pytestmark = [pytest.mark.anyio, every_case]

PATH = "/v1/responses"


async def start(served: Served, phase: str) -> str:
    """Start a background response and hang up; return its path once it is in that phase."""
    body = {"background": True, "ignore_eos": True, **PHASES[PATH][phase]}
    created = await served.content(post("starter", PATH, **body))
    await served.until_in(phase, "starter")
    return f"{PATH}/{created['id']}"


@pytest.mark.parametrize("phase", PHASES[PATH])
async def test_a_background_response_is_freed_by_its_cancel_and_not_by_its_client(phase: str) -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0, chat_template=TEMPLATE) as served:
        path = await start(served, phase)
        cancelled = await served.content(post("cancels", f"{path}/cancel"))
        assert cancelled["status"] == "cancelled"
        await served.until_idle()
        await no_row_is_carried(served, 0)
        assert await served.content(get(path)) == cancelled


async def test_the_servers_end_frees_a_background_response() -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0, chat_template=TEMPLATE) as served:
        await start(served, "decode")
        served.shutdown.set()
        with anyio.fail_after(GUARD):
            await served.stopped.wait()
        await served.until_idle()
