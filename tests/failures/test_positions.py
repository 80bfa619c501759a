"""Groups 2 and 3, a shared position and guessing: the first request worked, the second failed, the third crashed.

Requests of every odd length, one after another, at once and interleaved, get what each gets alone.
"""

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from tests.alone import Alone, alone
from tests.gateway.server.sockets import Answer, Client
from tests.system.answers import STREAMED, read_completion
from tests.system.served import GUARD, Served, completion, serving

pytestmark = pytest.mark.anyio

LENGTHS = (2, 1, 65, 3, 13, 127, 5, 64, 7, 31, 255, 63, 301, 17)
"""Numbers of prompt tokens: all different, on both sides of each block border."""
SLOTS = 4
MAX_TOKENS = 12
GUESSED: dict[str, Any] = {"max_tokens": MAX_TOKENS, "speculative": True}


@pytest.fixture(scope="module")
def model() -> Iterator[Alone]:
    with alone() as opened:
        yield opened


@pytest.fixture(scope="module")
def prompts(model: Alone) -> list[list[int]]:
    """Return pieces of one story, each from another place."""
    begin = model.tokens("Once upon a time")
    story = begin + model.continuation(begin, 400)
    return [[begin[0], *story[5 * at : 5 * at + length - 1]] for at, length in enumerate(LENGTHS)]


def check(model: Alone, prompt: list[int], answer: Answer) -> None:
    completed = read_completion(answer)
    (choice,) = completed.choices
    text = model.says(prompt, MAX_TOKENS).text
    assert choice.text == text or model.could_say(prompt, choice.text, MAX_TOKENS)
    counted = (completed.usage["prompt_tokens"], completed.usage["completion_tokens"])
    assert counted == (len(prompt), MAX_TOKENS)


async def begin(served: Served, prompt: list[int], *, cache: bool) -> Client:
    """Send a streaming request, and wait for the start of its stream."""
    client = served.client()
    request = completion("asks", prompt=prompt, cache_prompt=cache, **GUESSED, **STREAMED)
    await client.send(request)
    await client.see(b'"text":"')
    return client


@pytest.mark.parametrize("cache", [True, False], ids=["prefixes reused", "nothing kept"])
async def test_requests_of_any_length_get_the_same_answer_as_alone(
    model: Alone, prompts: list[list[int]], cache: bool
) -> None:
    async with serving(slots=SLOTS, threads=1, grace=0.0) as served:
        with anyio.fail_after(GUARD):
            for prompt in prompts * 2:
                await ask_and_check(served, model, prompt, cache=cache)
            async with anyio.create_task_group() as tasks:
                for prompt in prompts:
                    tasks.start_soon(ask_and_check, served, model, prompt, cache)
            await interleave(served, model, prompts, cache=cache)
        await served.until_idle()
        assert served.engine.status.restarts == 0


async def ask_and_check(served: Served, model: Alone, prompt: list[int], cache: bool) -> None:
    request = completion("asks", prompt=prompt, cache_prompt=cache, **GUESSED)
    check(model, prompt, await served.answer(request))


async def interleave(served: Served, model: Alone, prompts: list[list[int]], *, cache: bool) -> None:
    """Start each request while the ones before it are in the middle of their answers."""
    open_streams: list[tuple[list[int], Client]] = []
    for prompt in prompts:
        open_streams.append((prompt, await begin(served, prompt, cache=cache)))
        if len(open_streams) == SLOTS:
            await finish(model, *open_streams.pop(0))
    for stream in open_streams:
        await finish(model, *stream)


async def finish(model: Alone, prompt: list[int], client: Client) -> None:
    check(model, prompt, await client.answer())
    client.close()
