"""Edits of the conversation that the server should make before the model reads it."""

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field
from typing_extensions import override

from gateway.apis.fields.base import UNKNOWN
from gateway.apis.fields.nested import Nested

MAX_EDITS = 16
"""Maximum number of edits in one request. Anthropic has three kinds. It bounds the cost of validation."""


class AllTurns(Nested):
    """All turns."""

    type: Literal["all"]


class KeepThinking(Nested):
    """The edit by which no thinking block is cleared, as here without an edit."""

    type: Literal["clear_thinking_20251015"]
    keep: Literal["all"] | AllTurns


class OtherEdit(Nested):
    """An edit that would change the conversation. It is not made, but reported as an unknown field."""

    model_config = ConfigDict(json_schema_extra={UNKNOWN: True})

    type: str

    @override
    def ignored(self) -> Iterable[str]:
        return (self.type,)


AnyEdit: TypeAlias = Annotated[KeepThinking | OtherEdit, Field(union_mode="left_to_right")]


class ContextManagement(Nested):
    """The edits of a conversation, in order."""

    edits: list[AnyEdit] = Field([], max_length=MAX_EDITS)
