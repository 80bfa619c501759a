"""Group 4, a lost outcome: of 72 requests from 24 clients at once, one came back empty.

Every accepted request ends in exactly one outcome, delivered exactly once. There is no empty success.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import anyio
import pytest

from engine.events import Failed, Finished, Released
from engine.protocol.messages import Accepted, Generate, Message, Refused, Step
from tests.alone import Alone, alone
from tests.engine.driver import continuation
from tests.repeat import TIMES, thorough
from tests.system.answers import STREAMED, read_completion
from tests.system.frames import watch_frames
from tests.system.served import Served, completion, serving

pytestmark = [pytest.mark.anyio, pytest.mark.long, thorough]

CLIENTS, REQUESTS, ROUNDS = 24, 18 * TIMES, 3
MAX_TOKENS = 4
SLOTS = 8
PROMPTS = ["Once upon a time", "The dog", "Lily and her mom went", "One day, a little", "He was very", "The sun"]
GUARD = 120.0 * TIMES

Says = Callable[[str], tuple[str, int]]
"""The answer of a prompt and its number of tokens."""


@pytest.fixture(scope="module")
def model() -> Iterator[Alone]:
    with alone() as opened:
        yield opened


@dataclass
class Outcomes:
    """The events of each request by its key: the number of acceptances, and each ended choice."""

    sent: int = 0
    accepted: Counter[int] = field(default_factory=Counter)
    ended: Counter[tuple[int, int]] = field(default_factory=Counter)
    other: list[object] = field(default_factory=list)

    def note_sent(self, message: Message) -> None:
        self.sent += isinstance(message, Generate)

    def note(self, message: Message) -> None:
        match message:
            case Accepted(key, _):
                self.accepted[key] += 1
            case Refused():
                self.other.append(message)
            case Step(events, _):
                self.ended.update((key, event.choice) for key, event in events if isinstance(event, Finished))
                self.other += [event for _, event in events if isinstance(event, Failed | Released)]


async def run_client(served: Served, number: int, says: Says) -> None:
    """Send one request after another on one connection; each answer must be whole and right."""
    client = served.client()
    for turn in range(REQUESTS):
        prompt = PROMPTS[(number + turn) % len(PROMPTS)]
        streamed = STREAMED if (number + turn) % 2 else {}
        await client.send(completion(f"{number}-{turn}", prompt=prompt, max_tokens=MAX_TOKENS, **streamed))
        completed = read_completion(await client.answer())
        text, prompt_tokens = says(prompt)
        assert [(choice.text, choice.reason) for choice in completed.choices] == [(text, "length")]
        usage = completed.usage
        counted = (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"])
        assert counted == (prompt_tokens, MAX_TOKENS, prompt_tokens + MAX_TOKENS)
    client.close()


async def run_rounds(served: Served, outcomes: Outcomes, says: Says) -> None:
    assert all(says(prompt)[0] for prompt in PROMPTS), "an empty answer would prove nothing"
    with anyio.fail_after(GUARD):
        for _ in range(ROUNDS):
            async with anyio.create_task_group() as tasks:
                for number in range(CLIENTS):
                    tasks.start_soon(run_client, served, number, says)
            await served.until_idle()
    requests = CLIENTS * REQUESTS * ROUNDS
    assert outcomes.sent == requests
    assert (len(outcomes.accepted), set(outcomes.accepted.values())) == (requests, {1})
    assert (len(outcomes.ended), set(outcomes.ended.values())) == (requests, {1})
    assert outcomes.other == []
    assert served.engine.status.restarts == 0


async def test_every_request_to_a_real_model_gets_one_whole_answer(
    monkeypatch: pytest.MonkeyPatch, model: Alone
) -> None:
    def says(prompt: str) -> tuple[str, int]:
        return model.says(prompt, MAX_TOKENS).text, len(model.tokens(prompt))

    outcomes = Outcomes()
    watch_frames(monkeypatch, outcomes.note_sent, outcomes.note)
    async with serving(slots=SLOTS, threads=1, grace=0.0) as served:
        await run_rounds(served, outcomes, says)


async def test_every_request_to_a_fake_model_gets_one_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def says(prompt: str) -> tuple[str, int]:
        return continuation(prompt, MAX_TOKENS), len(prompt)

    outcomes = Outcomes()
    watch_frames(monkeypatch, outcomes.note_sent, outcomes.note)
    async with serving(seconds_per_pass=0.0, slots=SLOTS, grace=0.0) as served:
        await run_rounds(served, outcomes, says)
