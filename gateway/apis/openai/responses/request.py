"""Fields of OpenAI's response requests."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from engine import GenerationRequest, Grammar, RequestError
from gateway.apis.fields import constraints
from gateway.apis.fields.base import Fields, given
from gateway.apis.fields.constraints import GrammarFields
from gateway.apis.fields.json_types import wrong_type
from gateway.apis.fields.labels import LabelFields
from gateway.apis.fields.nested import Nested, missing, refusal
from gateway.apis.fields.reasoning import ReasoningFields
from gateway.apis.fields.refusing import RefusingFields
from gateway.apis.fields.sampling import MAX_INT, MAX_LOGPROBS, SamplingFields, StreamReportFields
from gateway.apis.openai.responses.answer import RequestEcho, ResponseSchemaFormat, ResponseTextFormat
from gateway.apis.openai.responses.input import EMPTY_INPUT, Id, InputForms, InputItem, has_text, read_input
from gateway.apis.openai.responses.store.pages import Includes
from gateway.apis.openai.responses.tools.fields import ResponseToolFields
from gateway.chat.conversation import Conversation
from gateway.chat.template_variables import PARSE_SPECIAL, Effort, TemplateKwargs, Verbosity, template_variables

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED_REASONING = "reasoning.encrypted_content"

SummaryKind: TypeAlias = Literal["auto", "concise", "detailed"]


class Reasoning(Fields):
    """Options of reasoning. The answer has the whole reasoning, whatever summary is asked for."""

    effort: Effort | None = None
    summary: SummaryKind | None = None
    generate_summary: SummaryKind | None = None
    mode: Literal["standard"] | None = None
    context: Literal["auto"] | None = None


class TextFormat(Fields):
    """The format of the answer. A schema is enforced with or without `strict`."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"properties": {"type": {"not": {"const": "json_schema"}}}}, given("name", "schema")]
        }
    )

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = Field(default=None, pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool = False

    @model_validator(mode="after")
    def _has_its_schema(self) -> "TextFormat":
        if self.type == "json_schema" and (self.schema_ is None or self.name is None):
            raise missing("schema" if self.schema_ is None else "name", "Field required where the type is json_schema")
        return self

    def grammar(self) -> Grammar | None:
        """Return the grammar of the format, or None for plain text. Raises `RequestError`."""
        if self.type == "text":
            return None
        try:
            if self.schema_ is None:
                return constraints.json_object()
            return constraints.json_schema(self.schema_, strict=self.strict)
        except ValueError as error:
            raise refusal("text.format.schema", str(error)) from error

    def to_json(self) -> ResponseTextFormat | ResponseSchemaFormat:
        """Return the format as a response repeats it."""
        if self.type != "json_schema" or self.name is None or self.schema_ is None:
            return {"type": "json_object" if self.type == "json_object" else "text"}
        described: ResponseSchemaFormat = {
            "type": self.type,
            "name": self.name,
            "schema": self.schema_,
            "strict": self.strict,
        }
        if self.description is not None:
            described["description"] = self.description
        return described


class TextOptions(Fields):
    """Options of the answer's text."""

    format: TextFormat = Field(default_factory=TextFormat)
    verbosity: Verbosity | None = None


class ConversationReference(Nested):
    """The conversation that a response continues."""

    id: Id


def _as_reference(value: object) -> object:
    if not isinstance(value, str | dict):
        raise wrong_type("should be the id of a conversation, or an object with the id")
    return {"id": value} if isinstance(value, str) else value


class ResponseStreamOptions(Fields):
    """Options of a stream. `include_obfuscation` has no effect: it pads encrypted streams, and this server has none."""

    include_obfuscation: bool = False


class ResponseBody(
    SamplingFields, GrammarFields, StreamReportFields, ResponseToolFields, ReasoningFields, LabelFields, RefusingFields
):
    """The body of a response request."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [given(input={"not": EMPTY_INPUT}), given("previous_response_id"), given("conversation")]
        }
    )
    unsupported: ClassVar[Mapping[str, str]] = {
        "prompt": "is not supported: this server stores no prompt templates",
        "context_management": "is not supported: this server does not compact",
        "moderation": "is not supported: this server does not moderate",
    }

    model: str | None = None
    input: Annotated[tuple[InputItem, ...], BeforeValidator(read_input, json_schema_input_type=InputForms)] = Field(
        default_factory=tuple
    )
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation_: (
        Annotated[
            ConversationReference, BeforeValidator(_as_reference, json_schema_input_type=Id | ConversationReference)
        ]
        | None
    ) = Field(None, alias="conversation")
    text: TextOptions = Field(default_factory=TextOptions)
    reasoning: Reasoning = Field(default_factory=Reasoning)
    chat_template_kwargs: TemplateKwargs = Field(default_factory=dict)
    parse_special: bool | None = Field(None, description=PARSE_SPECIAL)
    max_output_tokens: int | None = Field(None, ge=1, le=MAX_INT)
    top_logprobs: int = Field(0, ge=0, le=MAX_LOGPROBS)
    include: Includes = Field(default_factory=list)
    truncation: Literal["auto", "disabled"] = Field(
        "disabled",
        description="`auto`: the first items are dropped as needed if the input does not fit, but no instructions. "
        "`disabled`: such an input is refused.",
    )
    stream: bool = False
    stream_options: ResponseStreamOptions | None = None
    background: bool = False
    store: bool = True
    client_metadata: dict[str, Any] | None = Field(None, description="Has no effect.")

    @model_validator(mode="after")
    def _fits_together(self) -> "ResponseBody":
        if self.conversation_ is not None and self.previous_response_id is not None:
            raise RequestError(
                "Only one of previous_response_id and conversation should be given.",
                code="mutually_exclusive_parameters",
                param="previous_response_id",
            )
        if not has_text(self.input) and self.previous_response_id is None and self.conversation_ is None:
            raise missing_input()
        if self.stream_options is not None and not self.stream:
            raise refusal("stream_options", "is allowed only where stream is true")
        if self.background and not self.store:
            raise refusal("background", "needs store to be true: the answer is fetched from there")
        if self.background and self.stream:
            raise refusal("background", "cannot be combined with stream: fetch the response by its id instead")
        return self

    @property
    def logprobs(self) -> bool:
        """True if the answer has log-probabilities."""
        return LOGPROBS in self.include or self.top_logprobs > 0

    @property
    def engine_names(self) -> dict[str, str]:
        """The client's names of fields, by the engine's names. A grammar without its own field comes from the tools."""
        asked = "tools" if self.text.format.type == "text" else "text.format"
        grammar = self.constrained_by or asked
        names = {"messages": "input", "max_tokens": "max_output_tokens", "logprobs": "top_logprobs"}
        return {**names, "prompt": "input", "grammar": grammar}

    def constraint(self) -> Grammar | None:
        """Return the grammar that the answer must match. Raises `RequestError` if it is invalid or given twice."""
        asked = self.text.format.grammar()
        if asked is not None and (other := self.constrained_by) is not None:
            raise refusal(other, "cannot be combined with text.format")
        return super().constraint() if asked is None else asked

    def conversation(self) -> Conversation:
        """Return the conversation before its items. Raises `RequestError` if the fields contradict each other."""
        tool_set = self.tool_set()
        return Conversation(
            messages=({"role": "system", "content": self.instructions},) if self.instructions else (),
            tools=tool_set.tools,
            tool_choice=tool_set.choice,
            parallel_tool_calls=self.parallel_tool_calls,
            grammar=self.constraint(),
            template_kwargs=template_variables(self.reasoning.effort, self.text.verbosity, self.chat_template_kwargs),
            reasoning_budget=self.budget,
            reasoning_message=self.reasoning_budget_message,
            parse_special=self.parse_special,
        )

    def request(self) -> GenerationRequest:
        """Return the engine's request, without an id and a prompt."""
        return self.generation().replaced(
            max_tokens=self.max_output_tokens,
            stream=self.stream,
            logprobs=self.top_logprobs if self.logprobs else None,
            token_ids=self.stream and self.timings_per_token,
            progress=self.stream and (self.return_progress or self.timings_per_token),
        )

    @property
    def conversation_id(self) -> str | None:
        """Id of the conversation that the response continues."""
        return None if self.conversation_ is None else self.conversation_.id

    def echo(self) -> RequestEcho:
        """Return the fields that a response repeats."""
        echo: RequestEcho = {
            "background": self.background,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": self.max_tool_calls,
            "metadata": self.metadata,
            "parallel_tool_calls": self.parallel_tool_calls,
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": {"effort": self.reasoning.effort, "summary": self.reasoning.summary},
            "safety_identifier": self.safety_identifier,
            "service_tier": "default",  # the only tier here, for every tier that the request may ask for
            "store": self.store,
            "text": {"format": self.text.format.to_json(), "verbosity": self.text.verbosity},
            "tool_choice": self.tool_choice_to_json(),
            "tools": self.tools_to_json(),
            "top_logprobs": self.top_logprobs,
            "truncation": self.truncation,
        }
        if self.conversation_ is not None:
            echo["conversation"] = {"id": self.conversation_.id}
        if self.user is not None:
            echo["user"] = self.user
        return echo


def missing_input() -> RequestError:
    """Return the error for a request without anything to answer."""
    message = "One of input, previous_response_id and conversation should be given, with more than empty reasoning."
    return RequestError(message, code="missing_required_parameter", param="input")
