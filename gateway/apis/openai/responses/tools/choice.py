"""Values of `tool_choice`."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from gateway.apis.fields.json_types import by_json, of_json
from gateway.apis.fields.nested import Nested
from gateway.apis.fields.tools import MAX_TOOLS
from gateway.apis.openai.responses.answer import (
    ToolChoiceAllowed,
    ToolChoiceCustom,
    ToolChoiceFunction,
    ToolChoiceHosted,
    ToolChoiceNamespace,
)
from gateway.apis.openai.responses.items import in_namespace
from gateway.apis.openai.responses.tools.offered import HostedKind

IN_NAMESPACE = "Namespace of the tool. It may be left out if no other tool of the type has the name."


class NamedTool(Nested):
    """A `tool_choice` that names the function to call."""

    type: Literal["function"]
    name: str
    namespace: str | None = Field(None, description=IN_NAMESPACE)

    def to_json(self) -> ToolChoiceFunction:
        """Return the choice as a response repeats it."""
        choice: ToolChoiceFunction = {"type": self.type, "name": self.name}
        return in_namespace(choice, self.namespace)


class NamedCustomTool(Nested):
    """A `tool_choice` that names the custom tool to call."""

    type: Literal["custom"]
    name: str
    namespace: str | None = Field(None, description=IN_NAMESPACE)

    def to_json(self) -> ToolChoiceCustom:
        """Return the choice as a response repeats it."""
        choice: ToolChoiceCustom = {"type": self.type, "name": self.name}
        return in_namespace(choice, self.namespace)


class AllowedNamespace(Nested):
    """A namespace whose tools are all allowed."""

    type: Literal["namespace"]
    name: str

    def to_json(self) -> ToolChoiceNamespace:
        """Return the entry as a response repeats it."""
        return {"type": self.type, "name": self.name}


class AllowedHosted(Nested):
    """A tool that OpenAI runs itself. The model has it neither with this entry nor without."""

    type: HostedKind

    def to_json(self) -> ToolChoiceHosted:
        """Return the entry as a response repeats it."""
        return {"type": self.type}


class AllowedChoice(Nested):
    """A `tool_choice` that allows only some of the tools."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[
        Annotated[NamedTool | NamedCustomTool | AllowedNamespace | AllowedHosted, Field(discriminator="type")]
    ] = Field(min_length=1, max_length=MAX_TOOLS)

    def to_json(self) -> ToolChoiceAllowed:
        """Return the choice as a response repeats it."""
        return {"type": self.type, "mode": self.mode, "tools": [tool.to_json() for tool in self.tools]}


_ObjectChoice: TypeAlias = Annotated[NamedTool | NamedCustomTool | AllowedChoice, Field(discriminator="type")]
Choice: TypeAlias = Annotated[
    Annotated[Literal["none", "auto", "required"], of_json("string")] | Annotated[_ObjectChoice, of_json("object")],
    by_json("should be a string or an object"),
]
