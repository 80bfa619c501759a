"""A `/generate` request as its handler needs it, without the body that it came in."""

from dataclasses import dataclass

from engine import GenerationRequest
from gateway.apis.generate.request import GenerateBody


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """Options for the shape of the answer."""

    logprobs: bool
    """True to add the log-probabilities."""
    token_ids: bool
    """True to add the token ids."""
    timings: bool
    """True to add the timings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCall:
    """A `/generate` request."""

    request: GenerationRequest
    """The engine's request, without an id."""
    options: GenerateOptions
    """Options for the shape of the answer."""
    names: dict[str, str]
    """The client's names of fields that the engine may refuse, by the engine's names."""


def prepare_generate(body: GenerateBody) -> GenerateCall:
    """Return the request in a body. Raises `RequestError` if its fields contradict each other."""
    options = GenerateOptions(logprobs=body.logprobs is not None, token_ids=body.return_token_ids, timings=body.timings)
    return GenerateCall(request=body.request(), options=options, names=body.engine_names)
