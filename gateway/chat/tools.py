"""The tools a request offers the model, and which of them it must use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call.

    Attributes:
        name: as calls name it.
        description: for the model; None where the request gives none.
        parameters: JSON schema of the arguments, an object's.
        strict: whether arguments must match the schema even where the model is free to call or not.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """The one tool that must be called."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | Named
