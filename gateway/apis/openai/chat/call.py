"""A chat request as its handler needs it, without the body that it came in."""

from dataclasses import dataclass

from engine import GenerationRequest
from gateway.apis.openai.chat.request import ChatBody
from gateway.chat.rendering import encode_conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Options for the shape of the answer."""

    n: int
    """Number of choices."""
    logprobs: bool
    """True to add the log-probabilities."""
    token_ids: bool
    """True to add the token ids."""
    timings: bool
    """True to add the timings."""
    include_usage: bool
    """True to end a stream with its usage."""
    continuous_usage: bool = False
    """True to add the usage until now of its choice to each chunk."""
    deprecated_calls: bool
    """True to send a call as `function_call`."""
    service_tier: bool
    """True to add the service tier, which is `default` whichever the request asks for."""
    timings_per_token: bool = False
    """True to add timings to each chunk."""
    return_progress: bool = False
    """True to send the progress of the prompt in a stream."""
    like_llama_server: bool = False
    """True for the content `null` in the first delta, and a fingerprint that begins with `b`, as llama-server's."""
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
        token_ids=body.return_token_ids,
        timings=body.timings,
        include_usage=body.include_usage,
        continuous_usage=body.continuous_usage,
        deprecated_calls=body.deprecated_calls,
        service_tier=body.service_tier is not None,
        timings_per_token=body.timings_per_token,
        return_progress=body.return_progress,
    )
    return ChatCall(
        model=body.model,
        conversation=encode_conversation(body.conversation()),
        request=body.request(),
        options=options,
        names=body.engine_names,
    )
