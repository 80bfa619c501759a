"""A chat request as its handler needs it, without the body that it came in."""

from dataclasses import dataclass

from engine import GenerationRequest
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.reports import Report
from gateway.chat.rendering import encode_conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Options for the shape of the answer."""

    n: int
    """Number of choices."""
    logprobs: bool
    """True to add the log-probabilities."""
    report: Report
    """What the answer has besides."""
    deprecated_calls: bool
    """True to send a call as `function_call`."""
    service_tier: bool
    """True to add the service tier, which is `default` whichever the request asks for."""
    verbose: bool = False
    """True to add llama-server's `__verbose` to the whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall:
    """A chat request. Its conversation is encoded and goes to the template as it is."""

    model: str | None
    """Name of the model."""
    conversation: bytes
    """Encoded conversation."""
    request: GenerationRequest
    """The engine's request, without an id and a prompt."""
    options: ChatOptions
    """Options for the shape of the answer."""
    names: dict[str, str]
    """The client's names of fields that the engine may refuse, by the engine's names."""


def prepare_chat(body: ChatBody) -> ChatCall:
    """Return the request in a body. Raises `RequestError` if its fields contradict each other."""
    options = ChatOptions(
        n=body.n,
        logprobs=body.logprobs,
        report=body.report(),
        deprecated_calls=body.deprecated_calls,
        service_tier=body.service_tier is not None,
    )
    return ChatCall(
        model=body.model,
        conversation=encode_conversation(body.conversation()),
        request=body.request(),
        options=options,
        names=body.engine_names,
    )
