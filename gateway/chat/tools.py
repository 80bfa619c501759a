"""Tools that a request offers to the model, and the choice among them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from engine import Grammar


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    """Name of the function in calls."""
    description: str | None = None
    """Description for the model, if the request has one."""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON schema of the arguments, which form an object. Its `required`, if it has one, is a list of strings."""
    strict: bool = False
    """Force the arguments to match the schema, even where the model is free to call or not."""
    custom: bool = False
    """True for a tool whose input is a text, which is its only argument."""
    grammar: Grammar | None = None
    """Grammar of the input of a custom tool; None for any text."""

    def described(self) -> dict[str, Any]:
        """Return the description for prompts."""
        description = {} if self.description is None else {"description": self.description}
        return {"name": self.name, **description, "parameters": self.parameters}


@dataclass(frozen=True, slots=True)
class Named:
    """Choice of one tool, which must be called."""

    name: str
    """Name of the tool."""


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | Named
