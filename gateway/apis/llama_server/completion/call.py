"""A `/completion` request as its handler needs it, without the body that it came in."""

from dataclasses import dataclass

from engine import GenerationRequest
from gateway.apis.llama_server.completion.request import NativeCompletionBody
from gateway.apis.llama_server.prompts import MixedPrompt, mixed


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeOptions:
    """Options for the shape of the answer."""

    return_tokens: bool
    """True to add the token ids to the whole text."""
    return_progress: bool
    """True to send the progress of the prompt in a stream."""
    timings_per_token: bool
    """True to add timings to each event of a stream."""
    response_fields: tuple[str, ...]
    """Fields of the whole answer to return. Empty: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCompletionCall:
    """A `/completion` request."""

    model: str | None
    """Name of the model."""
    prompts: tuple[MixedPrompt, ...]
    """The prompts, of texts and token ids."""
    request: GenerationRequest
    """The engine's request, without an id and prompts."""
    biased_texts: tuple[tuple[str, float], ...]
    """Biases of each token of a text."""
    options: NativeOptions
    """Options for the shape of the answer."""
    names: dict[str, str]
    """The client's names of fields that the engine may refuse, by the engine's names."""


def prepare_native_completion(body: NativeCompletionBody) -> NativeCompletionCall:
    """Return the request in a body. Raises `RequestError` if its fields contradict each other."""
    return native_call(body, mixed(body.prompt))


def native_call(body: NativeCompletionBody, prompts: tuple[MixedPrompt, ...]) -> NativeCompletionCall:
    """Return the request in a body with these prompts. Raises `RequestError` if its fields contradict each other."""
    options = NativeOptions(
        return_tokens=body.return_tokens,
        return_progress=body.return_progress,
        timings_per_token=body.timings_per_token,
        response_fields=tuple(body.response_fields),
    )
    return NativeCompletionCall(
        model=body.model,
        prompts=prompts,
        request=body.request(),
        biased_texts=tuple((text, bias) for text, bias in body.logit_bias if isinstance(text, str)),
        options=options,
        names={**body.engine_names, "max_tokens": "n_predict", "logprobs": "n_probs"},
    )
