"""Fields of Ollama's requests that generate."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from engine import GenerationRequest, Infill, Prompt
from gateway.apis.fields.base import Fields
from gateway.apis.fields.nested import refusal
from gateway.apis.fields.refusing import RefusingFields
from gateway.apis.fields.sampling import MAX_LOGPROBS, cut_at_the_end
from gateway.apis.fields.tools import check_tools
from gateway.apis.ollama.messages import MessagesField, NoImages, ToolsField, for_template, tools_of
from gateway.apis.ollama.options import (
    Format,
    KeepAlive,
    Options,
    OptionsField,
    Think,
    grammar_of,
    think_variables,
)
from gateway.chat.conversation import Conversation
from gateway.chat.template_capabilities import TemplateMessage
from gateway.chat.tools import Tool


class ModelFields(Fields):
    """Fields of every request for a model."""

    model: str = Field(min_length=1)
    options: OptionsField = Field(default_factory=lambda: Options.model_validate({}))
    keep_alive: KeepAlive | None = None


class GenerationFields(ModelFields):
    """Fields of every request that generates."""

    stream: bool = True
    think: Think | None = None
    format: Format | None = None
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MAX_LOGPROBS, description="Has no effect without `logprobs`.")
    truncate: bool | None = Field(None, description="Has no effect: a prompt that is too long is refused.")
    shift: bool | None = Field(None, description="Has no effect: see `--context-shift`.")

    def request(self) -> GenerationRequest:
        """Return the engine's request, without an id and a prompt."""
        request = cut_at_the_end(self.options.sampling().generation(), self.options.max_tokens)
        return request.replaced(
            given=request.given & self.options.given,
            stream=self.stream,
            logprobs=self.top_logprobs if self.logprobs else None,
        )

    def conversation_of(self, messages: tuple[TemplateMessage, ...], tools: tuple[Tool, ...] = ()) -> Conversation:
        """Return a conversation with the fields that chats and prompts share."""
        last = messages[-1] if messages else None
        return Conversation(
            messages=messages,
            tools=tools,
            grammar=grammar_of(self.format),
            template_kwargs=think_variables(self.think),
            continue_final=last is not None and last["role"] == "assistant" and "tool_calls" not in last,
        )


class OllamaChatBody(GenerationFields):
    """The body of a chat request. Without messages it only loads the model."""

    messages: MessagesField = ()
    tools: ToolsField = ()

    def conversation(self) -> Conversation | None:
        """Return the conversation, or None if there is none. Raises `RequestError` for tools of the same name."""
        if not self.messages:
            return None
        tools = tools_of(self.tools)
        check_tools(tools, "auto", offered="tools", chosen="tools")
        return self.conversation_of(for_template(self.messages), tools)


class OllamaGenerateBody(GenerationFields, RefusingFields):
    """The body of a request for a text. Without a prompt it only loads the model."""

    unsupported: ClassVar[Mapping[str, str]] = {
        "template": "is not supported: the template is chosen where the server is started, by --chat-template",
        "context": "is not supported: send the earlier messages to /api/chat",
    }
    empty: ClassVar[Mapping[str, Any]] = {"template": "", "context": []}

    prompt: str = ""
    suffix: str = ""
    system: str = ""
    raw: bool = False
    images: NoImages = Field(default_factory=list)

    def text(self) -> Prompt | None:
        """Return the prompt as it is without a template, or None if it needs one, or there is none.

        Raises:
            RequestError: fields exclude each other.
        """
        if self.system and (self.raw or self.suffix):
            raise refusal(
                "system", f"cannot be combined with {'raw' if self.raw else 'suffix'}, which uses no template"
            )
        if self.suffix:
            return Infill(self.prompt, self.suffix)
        return self.prompt if self.prompt and not self.system else None

    def conversation(self) -> Conversation | None:
        """Return the prompt as a conversation, or None if it is to be without a template, or there is none."""
        if self.raw or self.suffix or not self.prompt:
            return None
        system = ({"role": "system", "content": self.system},) if self.system else ()
        return self.conversation_of((*system, {"role": "user", "content": self.prompt}))
