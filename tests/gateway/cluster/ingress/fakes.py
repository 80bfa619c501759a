"""Replicas without Ray, which do what a test says."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starlette.types import Message
from typing_extensions import override

from engine import ModelInfo
from gateway.cluster.ingress.replicas import Forwarded, ReplicaLostError, Replicas
from gateway.cluster.request import ForwardedRequest, Messages, Placement
from gateway.routing.report import HeldBlocks, Report
from tests.gateway.fake_engine import MODEL

Answer: TypeAlias = Callable[[ForwardedRequest], AsyncIterator[Messages]]


@dataclass
class FakeReplicas(Replicas):
    """Replicas that give one answer after another. The last one is repeated."""

    answers: list[Answer]
    known: dict[str, dict[str, Any]] = field(default_factory=lambda: {"one": {"ready": 1.0}})
    asked: list[tuple[ForwardedRequest, Placement]] = field(default_factory=list)
    holding: dict[str, HeldBlocks] = field(default_factory=dict)
    described: ModelInfo = MODEL
    open: int = 0

    @property
    @override
    def reports(self) -> Mapping[str, Mapping[str, Any]]:
        return self.known

    @override
    @asynccontextmanager
    async def forward(self, request: ForwardedRequest, placement: Placement) -> AsyncIterator[Forwarded]:
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append((request, placement))
        self.open += 1
        try:
            yield FakeForwarded(placement.replica or "one", answer(request))
        finally:
            self.open -= 1

    @override
    async def model(self, replica: str) -> ModelInfo:
        return self.described

    @override
    async def held(self, replica: str, since: int) -> Report:
        if replica not in self.holding:
            raise ReplicaLostError("ActorDiedError")
        return self.holding[replica].report(since)


@dataclass
class FakeForwarded(Forwarded):
    """A request that a replica has accepted at once."""

    replica: str
    answer: AsyncIterator[Messages]

    @override
    async def accepted(self) -> str:
        return self.replica

    @override
    async def responses(self) -> AsyncIterator[Messages]:
        async for messages in self.answer:
            yield messages


def head(media: str = "application/json", status: int = 200) -> Message:
    headers = [(b"content-type", media.encode()), (b"x-request-id", b"of the replica")]
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(data: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


def answering(data: bytes, media: str = "application/json", status: int = 200) -> Answer:
    async def answer(_request: ForwardedRequest) -> AsyncIterator[Messages]:
        yield [head(media, status), body(data)]

    return answer


def failing(*messages: Message, error: Exception) -> Answer:
    """Return an answer that ends with an error after some messages."""

    async def answer(_request: ForwardedRequest) -> AsyncIterator[Messages]:
        for message in messages:
            yield [message]
        raise error

    return answer
