"""Rendering of encoded conversations as a pure function, for any process."""

from dataclasses import dataclass
from functools import lru_cache

import msgspec

from engine import ModelInfo, RequestError
from gateway.chat.conversation import ChatModel, ChatPrompt, Conversation

MAX_COMPILED = 8
"""Maximum of models whose compiled templates a process keeps."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Conversation)


@dataclass(frozen=True, slots=True)
class TemplateKey:
    """Everything of a model that its prompts depend on. Equal keys render equal prompts."""

    source: str
    """Jinja source of the template."""
    tool_source: str | None
    """Jinja source of the template for requests with tools, if there is another one for them."""
    bos: str
    """Text of the beginning-of-sequence token."""
    eos: str
    """Text of the end-of-sequence token."""
    special_tokens: tuple[tuple[str, int], ...]
    """Names and ids of the control tokens and of the user-defined tokens."""


def template_key(model: ModelInfo, override: str | None = None) -> TemplateKey:
    """Return the key of a model's templates.

    Args:
        model: the model that the prompts are for.
        override: source of a template that replaces the model's own.

    Raises:
        RequestError: if there is no template.
    """
    source = override or model.chat_template
    if not source:
        message = "This model has no chat template. Start the server with --chat-template FILE to give it one."
        raise RequestError(message, code="chat_template_missing", param="messages")
    tool_source = None if override else model.tool_template
    return TemplateKey(source, tool_source, model.bos, model.eos, tuple(model.special_tokens.items()))


def encode_conversation(conversation: Conversation) -> bytes:
    """Return a conversation as `render` takes it."""
    return _encoder.encode(conversation)


def render(template: TemplateKey, conversation: bytes) -> ChatPrompt:
    """Return the prompt of an encoded conversation. Takes as long as the template does.

    Compiles a template once in a process.

    Raises:
        RequestError: if the template cannot be compiled; and as `ChatModel.prompt` does.
    """
    return compiled(template).prompt(_decoder.decode(conversation))


@lru_cache(maxsize=MAX_COMPILED)
def compiled(template: TemplateKey) -> ChatModel:
    """Return a template that is compiled once in a process.

    Raises:
        RequestError: if the template cannot be compiled.
    """
    return ChatModel(
        template.source,
        template.tool_source,
        bos=template.bos,
        eos=template.eos,
        special_tokens=dict(template.special_tokens),
    )
