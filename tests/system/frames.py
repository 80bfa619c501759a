"""A tap on every frame between this process and its engine."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from engine.client.process import EngineProcess
from engine.events import Event, Finished
from engine.info import EngineMetrics
from engine.protocol.codec import encode
from engine.protocol.messages import Accepted, Generate, Message, Step, ToEngine

NO_FIGURES = EngineMetrics()


def watch_frames(
    monkeypatch: pytest.MonkeyPatch, sent: Callable[[Message], object], received: Callable[[Message], object]
) -> None:
    """Call `sent` and `received` with every message from now on."""
    send, receive = EngineProcess.send, EngineProcess.receive

    def watched_send(process: EngineProcess, message: ToEngine) -> None:
        sent(message)
        send(process, message)

    async def watched_receive(process: EngineProcess) -> list[Message]:
        messages = await receive(process)
        for message in messages:
            received(message)
        return messages

    monkeypatch.setattr(EngineProcess, "send", watched_send)
    monkeypatch.setattr(EngineProcess, "receive", watched_receive)


def size(message: Message) -> int:
    """Return the bytes of a message's frame, without the digits of counters and durations."""
    match message:
        case Generate() | Accepted():
            message = replace(message, key=0)
        case Step(events, _):
            message = Step(tuple((0, _untimed(event)) for _, event in events), NO_FIGURES)
    return len(encode(message))


def _untimed(event: Event) -> Event:
    return replace(event, prompt_seconds=0.0, decode_seconds=0.0) if isinstance(event, Finished) else event
