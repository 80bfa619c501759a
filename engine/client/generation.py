"""An accepted generation request, as its caller reads it."""

from collections.abc import Callable

from engine.client.mailbox import Mailbox, PassOn
from engine.client.queue_positions import QueuePositions
from engine.errors import Unavailable
from engine.events import Finished, Text


class Generation:
    """An accepted request. For one task at a time."""

    def __init__(
        self,
        mailbox: Mailbox,
        prompt_tokens: tuple[int, ...],
        positions: QueuePositions,
        end_reasoning: Callable[[Mailbox], bool],
    ) -> None:
        self.prompt_tokens = prompt_tokens
        """Number of tokens of each prompt."""
        self._mailbox = mailbox
        self._positions = positions
        self._end_reasoning = end_reasoning

    def end_reasoning(self) -> bool:
        """End the reasoning of the choices where it has begun: its closing tag comes next. Never waits.

        Any task may call it. Returns False if the request waits for a slot or has ended.
        """
        return self._end_reasoning(self._mailbox)

    async def position(self) -> int | None:
        """Return the position in the queue, from 1, or None if it is unknown or the request has left the queue.

        It is an estimate, and up to a second old. Waits for the engine's answer for at most a second.
        """
        key = self._mailbox.key
        if key is None or self._mailbox.started_at is not None:
            return None
        try:
            return (await self._positions.latest()).get(key)
        except Unavailable:
            return None

    async def started(self) -> None:
        """Wait until the request has left the queue. Returns at once if it ended successfully.

        Raises:
            EngineError: The request failed.
        """
        await self._mailbox.started()

    def pass_on(self, to: PassOn) -> None:
        """Pass texts to a function while `take` waits for them. The wait goes on if it takes them.

        Args:
            to: Takes a text at once, or returns False. It must not wait and must not raise.
        """
        self._mailbox.pass_on(to)

    async def take(self) -> list[Text | Finished]:
        """Wait for events and return all pending ones, in order; [] after the last event of every choice.

        An error is raised only after all earlier events were returned, unless a cancel has dropped them.

        Raises:
            EngineFault: The engine failed the request or died.
            SlowReader: An event was pending for longer than the caller's patience.
            EngineError: A replay of the request was refused.
        """
        return await self._mailbox.take()

    async def outcomes(self) -> tuple[Finished, ...]:
        """Wait for the end of every choice and return the ends in order. For requests that do not stream.

        Raises:
            EngineError: As in `take`.
        """
        return await self._mailbox.outcomes()
