"""One client's many or costly requests neither keep another client's light request waiting until they are done, nor
disturb a third one's stream."""

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from tests.attacks.watched import attacked
from tests.gateway.server.sockets import Answer
from tests.repeat import thorough
from tests.system.served import GUARD, Served, by, completion, post

pytestmark = [pytest.mark.anyio, thorough]

MANY = 8


def costly_schema(number: int) -> dict[str, Any]:
    """Return a schema of optional properties, which takes some tenths of a second to compile. Each is another."""
    return {"type": "object", "properties": {f"{number}p{at}": {"type": "string"} for at in range(1_500)}}


def of_attacker(path: str, **body: Any) -> bytes:
    return by("attacker", post("attack", path, **body))


def generating(**body: Any) -> bytes:
    return of_attacker("/v1/completions", **{"prompt": "Once", "ignore_eos": True, **body})


GRAMMARS = [generating(max_tokens=1, json_schema=costly_schema(at)) for at in range(MANY)]
REFUSED = [generating(max_tokens=10**6, json_schema=costly_schema(at)) for at in range(MANY)]
LONG_TEXTS = [of_attacker("/tokenize", content=f"{at} hello" * 20_000) for at in range(MANY)]
LONG_PROMPTS = [generating(prompt=f"{at} hello" * 20_000, max_tokens=1) for at in range(MANY)]
INPUTS = [of_attacker("/v1/embeddings", input=[f"{at} {number} hello" for number in range(800)]) for at in range(2)]
CHOICES = [generating(n=32, max_tokens=40, temperature=1) for _ in range(2)]
LIGHT = [completion("light", max_tokens=2), post("light", "/tokenize", content="hello")]
QUEUE = [generating(max_tokens=40) for _ in range(40)]


@dataclass
class Race:
    """The order in which requests are answered."""

    served: Served
    requests: int
    answers: list[Answer] = field(default_factory=list)
    """Answers to the attacker."""
    _sent: int = 0
    all_sent: anyio.Event = field(default_factory=anyio.Event)

    async def attack(self, request: bytes) -> None:
        client = self.served.client()
        await client.send(request)
        self._sent += 1
        if self._sent == self.requests:
            self.all_sent.set()
        self.answers.append(await client.answer())
        client.close()


@pytest.mark.parametrize(
    ("attack", "overtaken"),
    [
        pytest.param(GRAMMARS, 1, id="grammars"),
        pytest.param(REFUSED, 0, id="grammars of requests that are refused anyway"),
        pytest.param(LONG_TEXTS, 1, id="long texts"),
        pytest.param(LONG_PROMPTS, 0, id="long prompts"),
        pytest.param(INPUTS, 2, id="many inputs"),
        pytest.param(CHOICES, 2, id="many choices"),
        pytest.param(QUEUE, 0, id="more requests than can wait"),
    ],
)
async def test_light_requests_overtake(attack: list[bytes], overtaken: int, anyio_backend_name: str) -> None:
    """At least so many of the attacker's requests are answered after the light ones, which come after all of them."""
    async with attacked(anyio_backend_name, slots=3, queue_limit=20) as target:
        served = target.served
        race = Race(served, len(attack))
        with anyio.fail_after(GUARD):
            async with anyio.create_task_group() as tasks:
                for request in attack:
                    tasks.start_soon(race.attack, request)
                await race.all_sent.wait()
                answers = [await served.answer(by("other", light)) for light in LIGHT]
                left = len(attack) - len(race.answers)
        assert [answer.status for answer in answers] == [200, 200], answers
        assert left >= overtaken
        assert {answer.status for answer in race.answers} <= {200, 400, 429}
        assert served.engine.status.restarts == 0
