"""Fields of OpenAI's chat requests."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from engine import GenerationRequest
from gateway.apis.fields.base import Fields
from gateway.apis.fields.constraints import GrammarFields
from gateway.apis.fields.labels import LabelFields
from gateway.apis.fields.nested import Nested
from gateway.apis.fields.prompts import MAX_CHOICES
from gateway.apis.fields.reasoning import ReasoningFields
from gateway.apis.fields.refusing import RefusingFields
from gateway.apis.fields.sampling import MAX_INT, MAX_LOGPROBS, SamplingFields
from gateway.apis.openai import vllm_fields
from gateway.apis.openai.chat.messages import (
    Content,
    RequestMessage,
    RequestMessages,
    for_template,
    joined,
    read_messages,
)
from gateway.apis.openai.chat.tools import ToolFields
from gateway.apis.openai.reports import ReportingFields
from gateway.chat.conversation import Conversation
from gateway.chat.template_variables import PARSE_SPECIAL, Effort, TemplateKwargs, Verbosity, template_variables

MAX_DOCUMENTS = 2**10
"""Maximum of documents in one request."""


class Prediction(Nested):
    """A text that the answer is expected to repeat in large part. Draft tokens are taken from it."""

    type: Literal["content"]
    content: Content


class TemplateFields(Fields):
    """Fields of the conversation and of its chat template."""

    messages: Annotated[
        tuple[RequestMessage, ...], BeforeValidator(read_messages, json_schema_input_type=RequestMessages)
    ]
    chat_template_kwargs: TemplateKwargs = Field(default_factory=dict)
    documents: list[dict[str, Any]] | None = Field(None, max_length=MAX_DOCUMENTS, fail_fast=True)
    reasoning_effort: Effort | None = None
    verbosity: Verbosity | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = Field(
        False, description="Requires a last message by the assistant without calls, and no `add_generation_prompt`."
    )

    parse_special: bool | None = Field(None, description=PARSE_SPECIAL)

    @field_validator("continue_final_message")
    @classmethod
    def _can_go_on(cls, continued: bool, info: ValidationInfo) -> bool:
        if not continued:
            return False
        if info.data.get("add_generation_prompt"):
            raise ValueError("cannot be combined with add_generation_prompt")
        *_, last = info.data.get("messages") or (None,)
        if last is not None and (last.role != "assistant" or last.tool_calls or last.function_call):
            raise ValueError("should be true only where the last message is an assistant's, without calls")
        return True


class ChatBody(
    SamplingFields,
    GrammarFields,
    ReportingFields,
    ToolFields,
    TemplateFields,
    ReasoningFields,
    LabelFields,
    RefusingFields,
):
    """The body of a chat request."""

    unsupported: ClassVar[Mapping[str, str]] = {
        **vllm_fields.UNSUPPORTED,
        "audio": "is not supported: this server's models write text only",
        "web_search_options": "is not supported: this server does not search",
        "moderation": "is not supported: this server does not moderate",
        "chat_template": "is not supported: the template is chosen where the server is started, by --chat-template",
    }
    empty = vllm_fields.EMPTY

    model: str | None = None
    n: int = Field(1, ge=1, le=MAX_CHOICES)
    max_tokens: int | None = Field(None, ge=-1, le=MAX_INT, description="-1: no limit.")
    max_completion_tokens: int | None = Field(None, ge=-1, le=MAX_INT, description="The same as `max_tokens`.")
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS, description="Requires `logprobs`.")
    modalities: list[Literal["text", "audio"]] | None = Field(None, max_length=2, json_schema_extra={"const": ["text"]})
    prediction: Prediction | None = None
    store: bool = False
    reasoning_control: bool = Field(False, description="Let `/v1/chat/completions/control` end the reasoning.")
    reasoning_format: Literal["auto", "deepseek", "none"] = Field(
        "auto",
        description="none: the reasoning stays in the content, with its tags. Otherwise it is `reasoning_content`.",
    )

    @field_validator("max_completion_tokens")
    @classmethod
    def _one_limit(cls, limit: int, info: ValidationInfo) -> int:
        if info.data.get("max_tokens") not in {None, limit}:
            raise ValueError("means the same as max_tokens, which has another value")
        return limit

    @field_validator("top_logprobs")
    @classmethod
    def _beside_logprobs(cls, top: int, info: ValidationInfo) -> int:
        if top and not info.data.get("logprobs"):
            raise ValueError("is allowed only where logprobs is true")
        return top

    @field_validator("modalities")
    @classmethod
    def _text_only(cls, modalities: list[str]) -> list[str]:
        if modalities != ["text"]:
            raise ValueError('should be ["text"]: this server\'s models write text only')
        return modalities

    @property
    def engine_names(self) -> dict[str, str]:
        """The client's names of fields that the engine may refuse, by the engine's names."""
        limit = "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
        offered = "functions" if self.deprecated_calls else "tools"
        return {"prompt": "messages", "max_tokens": limit, "grammar": self.constrained_by or offered}

    def conversation(self) -> Conversation:
        """Return the conversation. Raises `RequestError` if its fields contradict each other."""
        tool_set = self.tool_set()
        return Conversation(
            messages=for_template(self.messages),
            tools=tool_set.tools,
            tool_choice=tool_set.choice,
            parallel_tool_calls=self.parallel_tool_calls and not self.deprecated_calls,
            grammar=self.constraint(),
            template_kwargs=template_variables(
                self.reasoning_effort, self.verbosity, self.chat_template_kwargs, documents=self.documents
            ),
            reasoning_budget=self.budget,
            reasoning_message=self.reasoning_budget_message,
            continue_final=self.continue_final_message,
            open_answer=self.add_generation_prompt is not False,
            parse_special=self.parse_special,
            reasoning_control=self.reasoning_control,
            reasoning_inline=self.reasoning_format == "none",
        )

    def request(self) -> GenerationRequest:
        """Return the engine's request, without an id and a prompt."""
        limit = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        return self.reporting(self.generation()).replaced(
            n=self.n,
            max_tokens=None if limit == -1 else limit,
            speculative=self.speculative if self.prediction is None else self.speculative is not False,
            prediction="" if self.prediction is None else joined(self.prediction.content),
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )
