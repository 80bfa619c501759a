"""Answers that are put together from those of several replicas."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import anyio
import orjson
from starlette.types import Message

from engine.errors import Unavailable
from gateway.cluster.ingress.replicas import ReplicaLostError, Replicas
from gateway.cluster.request import ForwardedRequest, Placement

PATIENCE = 5.0
"""Seconds in which a replica must answer a request for its state. Later ones are left out."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Whole answer of one replica."""

    replica: str
    """Id of the replica."""
    head: Message
    """ASGI message that begins the response."""
    body: bytes
    """Body of the response."""

    @property
    def good(self) -> bool:
        """True for an answer without an error."""
        return bool(self.head["status"] == HTTPStatus.OK)


async def gather(asked: Iterable[tuple[Replicas, Placement]], request: ForwardedRequest) -> list[Gathered]:
    """Ask several replicas the same, and return the answers that come in time, in the order of the questions."""
    questions = list(asked)
    answers: dict[int, Gathered] = {}

    async def ask(number: int, replicas: Replicas, placement: Placement) -> None:
        try:
            answers[number] = await _whole(replicas, request, placement)
        except (ReplicaLostError, Unavailable):
            return

    with anyio.move_on_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for number, (replicas, placement) in enumerate(questions):
                tasks.start_soon(ask, number, replicas, placement)
    return [answers[number] for number in sorted(answers)]


def merged(bodies: Sequence[bytes]) -> bytes:
    """Return one JSON object with the lists of all, one after another, and otherwise the fields of the first.

    `last_id`, which is null for an empty list, is that of the last.
    """
    whole: dict[str, Any] = {}
    for body in bodies:
        for name, value in orjson.loads(body).items():
            if isinstance(value, list):
                whole[name] = [*whole.get(name, []), *value]
            elif whole.get(name) is None or (name == "last_id" and value is not None):
                whole[name] = value
    return orjson.dumps(whole)


def labelled(pages: Mapping[str, str]) -> str:
    """Return the metrics of several replicas as one page, each with the label `replica`.

    Args:
        pages: metrics in Prometheus's text format, by the ids of the replicas.
    """
    families: dict[str, list[str]] = {}
    for replica, page in pages.items():
        family: list[str] = []
        for line in page.splitlines():
            if line.startswith("# HELP"):
                family = families.setdefault(line.split()[2], [line])
            elif line.startswith("#"):
                if line not in family:
                    family.append(line)
            elif line:
                family.append(_labelled(line, replica))
    return "".join(f"{line}\n" for family in families.values() for line in family)


def _labelled(sample: str, replica: str) -> str:
    name, brace, rest = sample.partition("{")
    if brace:
        return f'{name}{{replica="{replica}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{replica="{replica}"}} {value}'


async def _whole(replicas: Replicas, request: ForwardedRequest, placement: Placement) -> Gathered:
    messages: list[Message] = []
    async with replicas.forward(request, placement) as response:
        replica = await response.accepted()
        async for some in response.responses():
            messages += some
    head, *parts = messages
    return Gathered(replica, head, b"".join(part.get("body", b"") for part in parts))
