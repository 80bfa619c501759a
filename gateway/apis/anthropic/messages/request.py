"""Fields of Anthropic's requests."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from engine import GenerationRequest, Grammar, RequestError
from gateway.apis.anthropic.messages.blocks import (
    AnyMessage,
    AssistantMessageParam,
    CacheControl,
    Messages,
    TextContent,
    ToolUseBlockParam,
    read_messages,
)
from gateway.apis.anthropic.messages.context import ContextManagement
from gateway.apis.anthropic.messages.thinking import EnabledThinking, ThinkingField, variables_of
from gateway.apis.anthropic.messages.tools import (
    ChoiceField,
    ClientTool,
    Tools,
    choice_of,
    is_parallel,
    read_tools,
)
from gateway.apis.anthropic.messages.transcript import for_template
from gateway.apis.fields.base import Fields
from gateway.apis.fields.constraints import Schema, json_schema
from gateway.apis.fields.nested import refusal
from gateway.apis.fields.refusing import RefusingFields
from gateway.apis.fields.sampling import MAX_INT, MAX_STOPS, SamplingFields, StopForm, cut_at_the_end
from gateway.apis.fields.tools import check_tools
from gateway.chat.conversation import Conversation
from gateway.chat.template_variables import TemplateKwargs, template_variables


class JsonFormat(Fields):
    """A JSON schema that the answer must match."""

    type: Literal["json_schema"]
    schema_: Schema = Field(alias="schema")


class OutputConfig(Fields):
    """Options of the model's output."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class Metadata(Fields):
    """Labels of a request. They have no effect."""

    user_id: str | None = None


class PromptFields(RefusingFields):
    """Fields of the conversation."""

    unsupported: ClassVar[Mapping[str, str]] = {
        "container": "is not supported: this server runs no code",
        "mcp_servers": "is not supported: this server calls no tools",
    }

    model: str
    messages: Annotated[tuple[AnyMessage, ...], BeforeValidator(read_messages, json_schema_input_type=Messages)]
    system: TextContent = Field(default_factory=list)
    tools: Annotated[tuple[ClientTool, ...], BeforeValidator(read_tools, json_schema_input_type=Tools)] = ()
    tool_choice: ChoiceField | None = None
    thinking: ThinkingField | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None
    context_management: ContextManagement | None = None
    thread: Any = Field(None, json_schema_extra={"type": "null"})
    speed: Literal["standard", "fast"] | None = None
    chat_template_kwargs: TemplateKwargs = Field(default_factory=dict)

    @field_validator("thread")
    @classmethod
    def _no_thread(cls, _thread: object) -> None:
        message = "thread: is not supported; send the whole conversation, whose beginning is cached"
        raise RequestError(message, code="thread_unsupported_request", param="thread")  # Anthropic's clients obey

    @property
    def engine_names(self) -> dict[str, str]:
        """The client's names of fields that the engine may refuse, by the engine's names."""
        return {"prompt": "messages", "grammar": "tools" if self._format is None else "output_config"}

    @property
    def omits_thinking(self) -> bool:
        """True if the answer has thinking blocks without their text."""
        return getattr(self.thinking, "display", None) == "omitted"

    def conversation(self) -> Conversation:
        """Return the conversation. Raises `RequestError` if its fields contradict each other."""
        tools, choice = tuple(tool.tool() for tool in self.tools), choice_of(self.tool_choice)
        check_tools(tools, choice, offered="tools", chosen="tool_choice")
        budget = self.thinking.budget_tokens if isinstance(self.thinking, EnabledThinking) else None
        if budget is not None and choice not in {"auto", "none"}:
            raise refusal("thinking", "may not be enabled when tool_choice forces tool use")
        effort = None if self.output_config is None else self.output_config.effort
        return Conversation(
            messages=for_template(self.system, self.messages),
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=is_parallel(self.tool_choice),
            grammar=self._grammar(),
            reasoning_budget=budget,
            template_kwargs=template_variables(
                effort, None, {**variables_of(self.thinking), **self.chat_template_kwargs}
            ),
            continue_final=self._continues(),
        )

    @property
    def _format(self) -> JsonFormat | None:
        return None if self.output_config is None else self.output_config.format

    def _grammar(self) -> Grammar | None:
        if self._format is None:
            return None
        try:
            return json_schema(self._format.schema_, strict=True)
        except ValueError as error:
            raise refusal("output_config.format.schema", str(error)) from error

    def _continues(self) -> bool:
        """Return True if the answer continues the last message."""
        last = next(reversed(self.messages), None)
        if not isinstance(last, AssistantMessageParam):
            return False
        if any(isinstance(block, ToolUseBlockParam) for block in last.content):
            place = f"messages[{len(self.messages) - 1}].content"
            raise refusal(place, "has tool_use blocks without tool_result blocks in a message after it")
        return True


class CountBody(PromptFields):
    """The body of a request that counts the tokens of a prompt."""


class MessagesBody(SamplingFields, PromptFields):
    """The body of a request for a message."""

    max_tokens: int = Field(
        ge=0, le=MAX_INT, description="The message ends earlier where the context is full. 0 only computes the prompt."
    )
    stream: bool = False
    stop_sequences: list[StopForm] = Field([], max_length=MAX_STOPS)
    metadata: Metadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    inference_geo: str | None = Field(None, description="Has no effect.")
    diagnostics: dict[str, Any] | None = Field(None, description="Has no effect.")
    user_profile_id: str | None = Field(None, description="Has no effect.")

    def request(self) -> GenerationRequest:
        """Return the engine's request, without an id and a prompt."""
        request = cut_at_the_end(self.generation(), self.max_tokens)
        return request.replaced(
            stream=self.stream,
            stop=(*request.stop, *self.stop_sequences),
            given=request.given | {"stop"} if "stop_sequences" in self.model_fields_set else request.given,
        )
