"""Answers of the conversation endpoints."""

from typing import Literal

from gateway.apis.answers.shapes import JsonObject, Timestamp


class Conversation(JsonObject):
    """A conversation, without its items."""

    id: str
    object: Literal["conversation"]
    created_at: Timestamp
    metadata: dict[str, str]


class DeletedConversation(JsonObject):
    """The confirmation that a conversation was deleted."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: Literal[True]
