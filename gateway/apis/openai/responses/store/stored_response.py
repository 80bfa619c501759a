"""A response in the store."""

from dataclasses import dataclass

from gateway.apis.openai.responses.encoded import EncodedItem, EncodedResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A response, with the items of its own request. It has ended, unless it runs in the background."""

    id: str
    """Id of the response."""
    content: EncodedResponse
    """The response."""
    inputs: tuple[EncodedItem, ...]
    """Items of its own request."""
    previous_id: str | None
    """Id of the previous response in the conversation."""
    can_continue: bool
    """True if another response may follow it."""
    background: bool
    """True if it ran in the background."""

    @property
    def items(self) -> tuple[EncodedItem, ...]:
        """Items of its request and of its output."""
        return self.inputs + self.content.output

    @property
    def items_size(self) -> int:
        """Size of all items, in bytes."""
        return sum(len(item.json) for item in self.items)

    @property
    def size(self) -> int:
        """Size that counts against the store's limit, in bytes."""
        return self.content.size + sum(len(item.json) for item in self.inputs)
