"""Streamed answers while they are generated, by their ids."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from engine import GenerationRequest
from gateway.middleware.caller import Caller
from gateway.middleware.streams.sse import EventSource, NextEvents
from gateway.serving.generation_source import GenerationSource


@dataclass(frozen=True, slots=True)
class RunningAnswer:
    """A streamed answer."""

    source: GenerationSource
    """Its generation."""
    controlled: bool
    """True if its reasoning may be ended."""


class RunningAnswers:
    """The streamed answers of all models. A caller finds only those of its own credentials."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], RunningAnswer] = {}

    def listed(
        self, caller: Caller, answer_id: str, request: GenerationRequest, source: GenerationSource
    ) -> EventSource:
        """Return the source of an answer, which is found by its id while the source is open."""
        key = caller.credentials, answer_id
        answer = RunningAnswer(source, controlled=request.reasoning is not None and request.reasoning.controlled)

        @asynccontextmanager
        async def opened() -> AsyncIterator[NextEvents]:
            async with source() as take:
                self._answers[key] = answer
                try:
                    yield take
                finally:
                    del self._answers[key]

        return opened

    def find(self, caller: Caller, answer_id: str) -> RunningAnswer | None:
        """Return an answer of a caller, or None if it does not run."""
        return self._answers.get((caller.credentials, answer_id))
