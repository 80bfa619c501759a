"""Hundreds of requests of random lengths: some clients hang up at random moments in every way, the others survive.

Every survivor gets what it gets alone, and at the end nothing is held.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from engine.protocol.messages import Cancel, Message
from tests.alone import Alone, alone
from tests.gateway.server.sockets import LEAVE, Client, get
from tests.repeat import TIMES, thorough
from tests.system.answers import STREAMED, Choice, Completion, read_completion
from tests.system.frames import watch_frames
from tests.system.served import Served, completion, serving

pytestmark = [pytest.mark.anyio, pytest.mark.long, thorough]

SEED = 2
BURSTS, CLIENTS, REQUESTS = 3, 24, 8 * TIMES
SLOTS, CONTEXT = 8, 2048
MOST_TOKENS = 30
SHARE_THAT_LEAVES = 0.4
LONGEST_STAY = 0.05
"""Seconds. About the time of a request here, so that the hang-ups happen in every phase."""
ENOUGH = 240.0 * TIMES
"""Seconds after which a test gives up waiting."""


@pytest.fixture(scope="module")
def model() -> Iterator[Alone]:
    with alone(CONTEXT) as opened:
        yield opened


@pytest.fixture(scope="module")
def prompts(model: Alone) -> list[list[int]]:
    """Return prompts of 2 to 230 tokens. Many share a long prefix."""
    chance = random.Random(SEED)
    begin = model.tokens("Once upon a time")
    story = begin + model.continuation(begin, 400)
    beginnings = [story[:1], story[:70], story[:140], [story[0], *story[200:390]]]
    pieces = [story[at : at + chance.randint(1, 40)] for at in range(10, 350, 10)]
    return [chance.choice(beginnings) + piece for piece in pieces]


@dataclass(frozen=True)
class Wish:
    """The request of one client."""

    prompts: list[list[int]]
    n: int
    max_tokens: int
    stop: str
    fields: dict[str, Any]

    def request(self, request_id: str) -> bytes:
        stop = {"stop": [self.stop]} if self.stop else {}
        body = {"prompt": self.prompts, "n": self.n, "max_tokens": self.max_tokens, **stop, **self.fields}
        return completion(request_id, **body)

    def check(self, completed: Completion, model: Alone) -> None:
        """Check that every choice is the same as for its prompt alone, and the usage right."""
        tokens, alike = 0, True
        for index, choice in enumerate(completed.choices):
            prompt = self.prompts[index // self.n]
            said = model.says(prompt, self.max_tokens, self.stop)
            tokens += said.tokens
            if choice != Choice(said.text, "stop" if said.stopped else "length"):
                alike = False
                ended_by = self.stop if choice.reason == "stop" else ""
                assert model.could_say(prompt, choice.text, self.max_tokens, ended_by), (self, choice, said)
        assert len(completed.choices) == len(self.prompts) * self.n
        assert completed.usage["prompt_tokens"] == sum(map(len, self.prompts))
        assert completed.usage["completion_tokens"] == tokens or not alike


class Crowd:
    """Clients that send random requests, and either stay for the answer or leave at some moment."""

    def __init__(self, served: Served, model: Alone, prompts: list[list[int]]) -> None:
        self.survived = 0
        self.left = 0
        self._served = served
        self._model = model
        self._prompts = prompts

    async def run_client(self, name: str) -> None:
        chance = random.Random(f"{SEED} {name}")
        for turn in range(REQUESTS):
            wish = self._wish(chance)
            client = self._served.client()
            if chance.random() < SHARE_THAT_LEAVES:
                await self._leave(client, wish.request(f"{name}-{turn}"), chance)
            else:
                await client.send(wish.request(f"{name}-{turn}"))
                wish.check(read_completion(await client.answer()), self._model)
                self.survived += 1
            client.close()

    async def leave_alone(self, request_id: str) -> None:
        """Send a long prompt to the idle server, and hang up."""
        prompt = self._prompts[0] * (CONTEXT // len(self._prompts[0]) - 1)
        before = await self._served.metrics()
        client = self._served.client()
        await client.send(completion(request_id, prompt=prompt, max_tokens=5))
        await self._served.until(lambda _, metrics: metrics.held == 1 or metrics.steps > before.steps)
        client.close()
        await self._served.until_idle()

    def _wish(self, chance: random.Random) -> Wish:
        prompts = chance.choices(self._prompts, k=chance.choice([1, 1, 1, 1, 2]))
        max_tokens = chance.randint(1, MOST_TOKENS)
        fields = {"cache_prompt": chance.random() < 0.7, "speculative": chance.choice([None, True, False])}
        fields |= chance.choice([{}, STREAMED])
        return Wish(prompts, chance.choice([1, 1, 1, 1, 2, 3]), max_tokens, self._stop(chance, prompts[0]), fields)

    def _stop(self, chance: random.Random, prompt: list[int]) -> str:
        """Return no stop string, or one that a long enough answer contains."""
        text = self._model.says(prompt, MOST_TOKENS).text
        at = chance.randrange(len(text))
        return chance.choice(["", "", text[at : at + chance.randint(1, 8)]])

    async def _leave(self, client: Client, request: bytes, chance: random.Random) -> None:
        self.left += 1
        sent = len(request) if chance.random() < 0.9 else chance.randrange(len(request))
        await client.send(request[:sent])
        with anyio.move_on_after(chance.uniform(0, LONGEST_STAY)):
            await client.is_closed()
        client.write(chance.choice([b"\r\n\r\n", get("/health"), b"\r\n"]) if chance.random() < 0.3 else b"")
        way = chance.choice(list(LEAVE))
        LEAVE[way](client)
        if way == "half-close":
            await client.is_closed()


async def test_surviving_requests_get_the_same_answer_as_alone_and_all_slots_are_free(
    monkeypatch: pytest.MonkeyPatch, model: Alone, prompts: list[list[int]]
) -> None:
    cancels: list[Message] = []
    watch_frames(monkeypatch, lambda m: cancels.append(m) if isinstance(m, Cancel) else None, lambda _: None)
    async with serving(slots=SLOTS, context=CONTEXT, threads=1, grace=0.0) as served:
        crowd = Crowd(served, model, prompts)
        with anyio.fail_after(ENOUGH):
            for burst in range(BURSTS):
                async with anyio.create_task_group() as tasks:
                    for number in range(CLIENTS):
                        tasks.start_soon(crowd.run_client, f"{burst}-{number}")
                await served.until_idle()
                aborted = (await served.metrics()).aborted
                while (await served.metrics()).aborted == aborted:
                    await crowd.leave_alone(f"alone-{burst}")
            await served.server.count_falls_to(0)
        metrics = await served.until_idle()
        assert (metrics.free, metrics.active_tokens, metrics.waiting) == (SLOTS, 0, 0)
        assert metrics.aborted >= BURSTS
        assert served.server.connections == set()
        assert served.engine.status.restarts == 0
    assert crowd.survived + crowd.left == BURSTS * CLIENTS * REQUESTS
    assert len(cancels) > crowd.left / 2
