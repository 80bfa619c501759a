"""Rendering of encoded conversations as a pure function, for any process."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import msgspec
import orjson

from engine import ModelInfo, RequestError
from gateway.chat.conversation import ChatModel, ChatPrompt, Conversation
from gateway.chat.reasoning import NO_LIMIT, ReasoningDefaults
from gateway.chat.template import current_dates
from gateway.chat.transcript import with_items
from gateway.chat.turns import with_turns

MAX_COMPILED = 8
"""Maximum of models whose compiled templates a process keeps."""


class _Transcript(msgspec.Struct, frozen=True, array_like=True):
    """A conversation that goes on with items of OpenAI's responses."""

    conversation: Conversation
    """The conversation before the items."""
    items: bytes
    """The items as a JSON array."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Conversation | _Transcript)


@dataclass(frozen=True, slots=True)
class TemplateDefaults:
    """The operator's defaults for all prompts of a model."""

    parse_special: bool = False
    """The default of `Conversation.parse_special`."""
    variables: str = "{}"
    """Variables of the template that requests may replace, as a JSON object."""
    dated: bool = False
    """True to add llama.cpp's variables with the current date."""
    reasoning: ReasoningDefaults = NO_LIMIT
    """Limit of the reasoning for conversations without one."""


NO_DEFAULTS = TemplateDefaults()


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
    control_names: tuple[str, ...] = ()
    """Names that are plain in the texts of clients."""
    turns: bool = False
    """True to find the turns of each prompt."""
    defaults: TemplateDefaults = NO_DEFAULTS
    """What requests may replace."""


def template_key(
    model: ModelInfo, override: str | None = None, defaults: TemplateDefaults = NO_DEFAULTS
) -> TemplateKey:
    """Return the key of a model's templates.

    Args:
        model: the model that the prompts are for.
        override: source of a template that replaces the model's own.
        defaults: what requests may replace.

    Raises:
        RequestError: if there is no template, which a model that does not generate need not have.
    """
    source = override or model.chat_template
    if not source:
        if not model.generates:
            raise RequestError("This model does not generate text.", code="unsupported_model", param="model")
        message = "This model has no chat template. Start the server with --chat-template FILE to give it one."
        raise RequestError(message, code="chat_template_missing", param="messages")
    return TemplateKey(
        source=source,
        tool_source=None if override else model.tool_template,
        bos=model.bos,
        eos=model.eos,
        special_tokens=tuple(model.special_tokens.items()),
        control_names=model.control_names,
        turns=model.checkpoints,
        defaults=defaults,
    )


def encode_conversation(conversation: Conversation) -> bytes:
    """Return a conversation as `render` takes it."""
    return _encoder.encode(conversation)


def append_items(conversation: bytes, items: Iterable[bytes]) -> bytes:
    """Return an encoded conversation that goes on with these items, as `render` takes it. Only copies bytes.

    Args:
        conversation: conversation without items, from `encode_conversation`.
        items: items of OpenAI's responses, as JSON.
    """
    return _encoder.encode((msgspec.Raw(conversation), b"[%b]" % b",".join(items)))


def render(template: TemplateKey, conversation: bytes) -> ChatPrompt:
    """Return the prompt of an encoded conversation. Takes as long as the template does.

    Compiles a template once in a process.

    Raises:
        RequestError: if the template cannot be compiled; and as `ChatModel.prompt` and `with_items` do.
    """
    model, decoded = compiled(template), _decoded(conversation)
    prompt = model.prompt(decoded)
    return with_turns(prompt, decoded, model) if template.turns else prompt


def _decoded(data: bytes) -> Conversation:
    decoded: Conversation | _Transcript = _decoder.decode(data)
    if isinstance(decoded, Conversation):
        return decoded
    before = decoded.conversation
    return replace(before, messages=with_items(before.messages, orjson.loads(decoded.items)))


@lru_cache(maxsize=MAX_COMPILED)
def compiled(template: TemplateKey) -> ChatModel:
    """Return a template that is compiled once in a process.

    Raises:
        RequestError: if the template cannot be compiled.
    """
    defaults = template.defaults
    return ChatModel(
        template.source,
        template.tool_source,
        bos=template.bos,
        eos=template.eos,
        special_tokens=dict(template.special_tokens),
        control_names=template.control_names,
        parse_special=defaults.parse_special,
        reasoning=defaults.reasoning,
        variables=partial(_variables, defaults.variables, dated=defaults.dated),
    )


def _variables(given: str, *, dated: bool) -> Mapping[str, Any]:
    variables: dict[str, Any] = orjson.loads(given)  # for each prompt, because a template can change its lists
    return {**current_dates(), **variables} if dated else variables
