"""A request that generates as its handler needs it, without the body that it came in."""

from dataclasses import dataclass

from engine import GenerationRequest
from gateway.apis.ollama.options import grammar_of
from gateway.apis.ollama.request import OllamaChatBody, OllamaGenerateBody
from gateway.chat.rendering import encode_conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCall:
    """A request that generates, or only loads the model."""

    model: str
    """Name of the model, as the client wrote it."""
    keep_alive: float | None
    """Seconds that the model stays loaded after the request; negative: until another needs it."""
    conversation: bytes | None
    """Encoded conversation; unset if the prompt is to be without a template, or there is none."""
    request: GenerationRequest | None
    """The engine's request, without an id, and without a prompt if it needs a template; unset to load the model."""
    names: dict[str, str]
    """The client's names of fields that the engine may refuse, by the engine's names."""


def prepare_chat(body: OllamaChatBody) -> TextCall:
    """Return the request in a body. Raises `RequestError` if its fields contradict each other."""
    conversation = body.conversation()
    return TextCall(
        model=body.model,
        keep_alive=body.keep_alive,
        conversation=None if conversation is None else encode_conversation(conversation),
        request=None if conversation is None else body.request(),
        names={"prompt": "messages", "grammar": "format"},
    )


def prepare_generate(body: OllamaGenerateBody) -> TextCall:
    """Return the request in a body. Raises `RequestError` if its fields contradict each other."""
    text, chat, request = body.text(), body.conversation(), body.request()
    if text is not None:
        request = request.replaced(prompts=(text,), grammar=grammar_of(body.format))
    return TextCall(
        model=body.model,
        keep_alive=body.keep_alive,
        conversation=None if chat is None else encode_conversation(chat),
        request=None if text is None and chat is None else request,
        names={"messages": "prompt", "grammar": "format"},
    )
