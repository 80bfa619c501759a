"""A completion request as its handler needs it, without the body that it came in."""

from dataclasses import dataclass

from engine import GenerationRequest
from gateway.apis.openai.completions.request import CompletionBody


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOptions:
    """Options for the shape of the answer."""

    n: int
    """Number of choices to return for each prompt."""
    choices: int
    """Number of choices to generate for each prompt."""
    echo: bool
    """True if each choice begins with its prompt."""
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
    timings_per_token: bool = False
    """True to add timings to each chunk."""
    return_progress: bool = False
    """True to send the progress of the prompts in a stream."""
    like_llama_server: bool = False
    """True for a fingerprint that begins with `b`, as llama-server's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionCall:
    """A completion request."""

    model: str | None
    """Name of the model."""
    request: GenerationRequest
    """The engine's request, without an id."""
    options: CompletionOptions
    """Options for the shape of the answer."""
    names: dict[str, str]
    """The client's names of fields that the engine may refuse, by the engine's names."""


def prepare_completion(body: CompletionBody) -> CompletionCall:
    """Return the request in a body. Raises `RequestError` if its fields contradict each other."""
    options = CompletionOptions(
        n=body.n,
        choices=body.choices,
        echo=body.echo,
        logprobs=body.logprobs is not None,
        token_ids=body.return_token_ids,
        timings=body.timings,
        include_usage=body.include_usage,
        continuous_usage=body.continuous_usage,
        timings_per_token=body.timings_per_token,
        return_progress=body.return_progress,
    )
    return CompletionCall(model=body.model, request=body.request(), options=options, names=body.engine_names)
