"""Clients that leave other APIs than completions, in any phase: all their state is freed."""

from typing import Any

import pytest

from tests.gateway.server.sockets import LEAVE, Client
from tests.repeat import every_case
from tests.system.served import LONG_PROMPT, MANY, PASS, Served, post, serving
from tests.system.test_cancellation import neighbours, no_row_is_carried

pytestmark = [
    pytest.mark.anyio,
    every_case,
    pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"]),
    pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/generate"]),
]

TEMPLATE = "{{ messages[-1].content }}"
PHASES: dict[str, dict[str, dict[str, Any]]] = {
    "/generate": {
        "prefill": {"prompt": LONG_PROMPT, "max_tokens": 5},
        "decode": {"prompt": "Once", "max_tokens": MANY},
    },
    "/v1/chat/completions": {
        "prefill": {"messages": [{"role": "user", "content": LONG_PROMPT}], "max_tokens": 5},
        "decode": {"messages": [{"role": "user", "content": "Once"}], "max_tokens": MANY, "n": 2},
    },
    "/v1/responses": {
        "prefill": {"input": LONG_PROMPT, "max_output_tokens": 5},
        "decode": {"input": "Once", "max_output_tokens": MANY},
    },
    "/v1/messages": {
        "prefill": {"model": "default", "messages": [{"role": "user", "content": LONG_PROMPT}], "max_tokens": 5},
        "decode": {"model": "default", "messages": [{"role": "user", "content": "Once"}], "max_tokens": MANY},
    },
}


async def send(served: Served, request_id: str, path: str, phase: str, *, stream: bool) -> Client:
    """Send a request and read no answer."""
    return await served.send(post(request_id, path, stream=stream, ignore_eos=True, **PHASES[path][phase]))


@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_a_hang_up_frees_the_request(path: str, phase: str, stream: bool) -> None:
    async with (
        serving(seconds_per_pass=PASS, slots=4, grace=0.0, chat_template=TEMPLATE) as served,
        neighbours(served, 1),
    ):
        for leave in LEAVE.values():
            client = await send(served, "leaver", path, phase, stream=stream)
            await served.until_in(phase, "leaver")
            leave(client)
            await served.until_gone("leaver")
            metrics = await served.metrics()
            assert (metrics.held, metrics.waiting, metrics.cached_tokens) == (1, 0, 0)
            await no_row_is_carried(served, 1)
            client.close()


async def test_a_hang_up_in_the_queue_frees_the_request(path: str, stream: bool) -> None:
    async with (
        serving(seconds_per_pass=PASS, slots=1, grace=0.0, chat_template=TEMPLATE) as served,
        neighbours(served, 1),
    ):
        client = await send(served, "waits", path, "decode", stream=stream)
        await served.until(lambda _, metrics: metrics.waiting > 0)
        client.close()
        await served.until(lambda _, metrics: metrics.waiting == 0)
        await no_row_is_carried(served, 1)
