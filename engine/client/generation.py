"""An accepted generation request, as its caller reads it."""

from engine.client.mailbox import Mailbox
from engine.events import Finished, Text


class Generation:
    """An accepted request. For one task at a time."""

    def __init__(self, mailbox: Mailbox, prompt_tokens: tuple[int, ...]) -> None:
        self.prompt_tokens = prompt_tokens
        """Number of tokens of each prompt."""
        self._mailbox = mailbox

    async def started(self) -> None:
        """Wait until the request has left the queue. Returns at once if it ended successfully.

        Raises:
            EngineError: The request failed.
        """
        await self._mailbox.started()

    async def take(self) -> list[Text | Finished]:
        """Wait for events and return all pending ones, in order; [] after the last event of every choice.

        An error is raised only after all earlier events were returned.

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
