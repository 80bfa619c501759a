"""Every frame between this process and its engine, as it passes."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.client.process import EngineProcess
from engine.events import Event, Figures, Finished
from engine.protocol import wire

NO_FIGURES = Figures(*[0] * 11)


def watch_frames(
    monkeypatch: pytest.MonkeyPatch, sent: Callable[[wire.Message], object], received: Callable[[wire.Message], object]
) -> None:
    """Call `sent` and `received` with every message from now on."""
    send, receive = EngineProcess.send, EngineProcess.receive

    def watched_send(process: EngineProcess, message: wire.ToEngine) -> None:
        sent(message)
        send(process, message)

    async def watched_receive(process: EngineProcess) -> list[wire.Message]:
        messages = await receive(process)
        for message in messages:
            received(message)
        return messages

    monkeypatch.setattr(EngineProcess, "send", watched_send)
    monkeypatch.setattr(EngineProcess, "receive", watched_receive)


def size(message: wire.Message) -> int:
    """Bytes of a message's frame, but for the digits of what counts requests, steps and seconds."""
    match message:
        case wire.Generate() | wire.Accepted():
            message = replace(message, key=0)
        case wire.Step(events, _):
            message = wire.Step(tuple((0, _untimed(event)) for _, event in events), NO_FIGURES)
    return len(wire.encode(message))


def _untimed(event: Event) -> Event:
    return replace(event, prompt_seconds=0.0, decode_seconds=0.0) if isinstance(event, Finished) else event
