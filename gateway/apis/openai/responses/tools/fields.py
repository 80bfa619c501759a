"""Tool fields of OpenAI's responses."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from gateway.apis.fields.base import Fields
from gateway.apis.fields.nested import refusal
from gateway.apis.fields.tools import MAX_TOOLS, check_tools
from gateway.apis.openai.chat.tools import ToolSet
from gateway.apis.openai.responses.answer import ResponseCustomTool, ResponseNamespace, ResponseTool, ResponseToolChoice
from gateway.apis.openai.responses.tools.choice import AllowedChoice, Choice, NamedCustomTool, NamedTool
from gateway.apis.openai.responses.tools.offered import HostedTool, OfferedTool, read_tools
from gateway.apis.openai.responses.tools.offers import Offer, allowed, named, offers_of, tools_of
from gateway.chat.tools import Named, ToolChoice


class ResponseToolFields(Fields):
    """Fields of the tools that the model may call."""

    tools: Annotated[
        tuple[OfferedTool, ...],
        BeforeValidator(read_tools, json_schema_input_type=Annotated[list[OfferedTool], Field(max_length=MAX_TOOLS)]),
    ] = ()
    tool_choice: Choice = "auto"
    parallel_tool_calls: bool = True
    max_tool_calls: int | None = Field(None, ge=0)
    """Limit for tools that OpenAI runs itself. It has no effect here."""

    def tool_set(self) -> ToolSet:
        """Return the tools. Raises `RequestError` if the choice does not match the tools."""
        offers, choice = self._offered()
        if choice == "required" and not offers and self.tools:
            raise refusal("tool_choice", "is required, but this server runs none of the tools that may be called")
        tools = tuple(tools_of(offers))
        check_tools(tools, choice, offered="tools", chosen="tool_choice")
        return ToolSet(tools, choice)

    def namespaces(self) -> dict[str, str]:
        """Return the namespaces of the tools that are in one, by the tools' names for the model."""
        offers, _ = self._offered()
        return {offer.model_name: offer.namespace for offer in offers if offer.namespace is not None}

    def _offered(self) -> tuple[list[Offer], ToolChoice]:
        offers = offers_of(self.tools)
        match self.tool_choice:
            case NamedTool() | NamedCustomTool() as choice:
                return offers, Named(named(offers, choice).model_name)
            case AllowedChoice() as choice:
                return allowed(offers, choice, self.tools), choice.mode
            case choice:
                return offers, choice

    def tools_to_json(self) -> list[ResponseTool | ResponseCustomTool | ResponseNamespace]:
        """Return the tools as a response repeats them, without those that are left out."""
        return [tool.to_json() for tool in self.tools if not isinstance(tool, HostedTool)]

    def tool_choice_to_json(self) -> ResponseToolChoice:
        """Return the choice as a response repeats it."""
        return self.tool_choice if isinstance(self.tool_choice, str) else self.tool_choice.to_json()
