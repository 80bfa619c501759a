"""Stores of OpenAI's API: where responses and conversations are kept."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from gateway.apis.openai.conversations.memory_store import MemoryConversations
from gateway.apis.openai.conversations.store import ConversationStore
from gateway.apis.openai.responses.store.memory_store import MemoryResponses
from gateway.apis.openai.responses.store.shares import Shares
from gateway.apis.openai.responses.store.store import ResponseStore


@dataclass(frozen=True, slots=True)
class Stores:
    """Stores with common limits."""

    responses: ResponseStore
    """Keeps responses."""
    conversations: ConversationStore
    """Keeps conversations."""
    open: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Opens both. They are used inside the context."""


def stores_in_memory(*, max_entries: int, max_bytes: int, max_recalled_bytes: int) -> Stores:
    """Return stores in the memory of this process, which share its limits.

    Args:
        max_entries: maximum number of responses and conversations.
        max_bytes: maximum size of all.
        max_recalled_bytes: maximum size of the stored items that one request uses.
    """
    shares = Shares(max_entries=max_entries, max_bytes=max_bytes)
    responses = MemoryResponses(shares, max_recalled_bytes=max_recalled_bytes)
    return Stores(responses, MemoryConversations(shares, max_recalled_bytes=max_recalled_bytes))
