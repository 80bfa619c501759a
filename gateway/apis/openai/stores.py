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
class Bounds:
    """Limits of all responses and conversations together, and of what one request recalls."""

    entries: int
    """Maximum number of responses and conversations."""
    bytes: int
    """Maximum size of all, in bytes."""
    recalled: int
    """Maximum size of the items that one request recalls, in bytes."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Stores with common limits."""

    responses: ResponseStore
    """Keeps responses."""
    conversations: ConversationStore
    """Keeps conversations."""
    open: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Opens both. They are used inside the context."""


def stores_in_memory(bounds: Bounds) -> Stores:
    """Return stores in the memory of this process, which share its limits."""
    shares = Shares(max_entries=bounds.entries, max_bytes=bounds.bytes)
    responses = MemoryResponses(shares, max_recalled_bytes=bounds.recalled)
    return Stores(responses, MemoryConversations(shares, max_recalled_bytes=bounds.recalled))
