"""A completion request as its handler needs it, without the body that it came in."""

from dataclasses import dataclass

from engine import GenerationRequest
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.reports import Report


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
    report: Report
    """What the answer has besides."""


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
        report=body.report(),
    )
    return CompletionCall(model=body.model, request=body.request(), options=options, names=body.engine_names)
