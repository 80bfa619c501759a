"""Rendering of encoded conversations as a pure function, for any process."""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import msgspec
import orjson

from gateway.chat.conversation import ChatModel, ChatPrompt, Conversation
from gateway.chat.template_key import TemplateKey
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
    """Return a template that is compiled once in a process. Raises the errors of `ChatModel`."""
    return ChatModel(template)
