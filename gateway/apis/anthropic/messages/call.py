"""A request for a message as its handler needs it, without the body that it came in."""

from dataclasses import dataclass

from engine import GenerationRequest
from gateway.apis.anthropic.messages.request import MessagesBody, PromptFields
from gateway.chat.rendering import encode_conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    """Options for the answer."""

    max_tokens: int
    """Maximum number of generated tokens."""
    omits_thinking: bool
    """True to leave the text of thinking blocks empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCall:
    """A conversation. It is encoded and goes to the template as it is."""

    model: str | None
    """Name of the model."""
    conversation: bytes
    """Encoded conversation."""
    names: dict[str, str]
    """The client's names of fields that the engine may refuse, by the engine's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCall:
    """A request for a message."""

    prompt: PromptCall
    """Its conversation."""
    request: GenerationRequest
    """The engine's request, without an id and a prompt."""
    options: MessageOptions
    """Options for the answer."""


def prepare_count(body: PromptFields) -> PromptCall:
    """Return the conversation in a body. Raises `RequestError` if its fields contradict each other."""
    return PromptCall(model=body.model, conversation=encode_conversation(body.conversation()), names=body.engine_names)


def prepare_message(body: MessagesBody) -> MessageCall:
    """Return the request in a body. Raises `RequestError` if its fields contradict each other."""
    options = MessageOptions(max_tokens=body.max_tokens, omits_thinking=body.omits_thinking)
    return MessageCall(prompt=prepare_count(body), request=body.request(), options=options)
