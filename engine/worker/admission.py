"""Validation and tokenisation of requests, before they are queued."""

import math
from collections.abc import Iterable
from dataclasses import fields

from engine.core.echo import make_echo
from engine.core.embedding.step import EmbeddingJob, EmbeddingLimits
from engine.core.group import SequenceGroup
from engine.core.model import Model
from engine.core.sequence import Sequence
from engine.errors import RequestError
from engine.request import (
    EmbeddingInput,
    EmbeddingRequest,
    GenerationRequest,
    Infill,
    Prompt,
    PromptText,
    Sampling,
    text_of,
)

_BYTES_PER_TOKEN = 16
"""Upper bound of the average token length of natural text, in bytes."""


def admit(key: int, request: GenerationRequest, model: Model) -> SequenceGroup:
    """Tokenise and validate a generation request, and return its sequences. May take long.

    Raises:
        RequestError: The request can never be served.
    """
    _check_finite(request.sampling)
    check_ids([token for token, _ in request.sampling.logit_bias], model.info.vocabulary, "logit_bias")
    check_ids(request.stop_tokens, model.info.vocabulary, "stop_token_ids")
    grammar = model.compile(request.grammar) if request.grammar else None
    model.prepare(request.sampling)
    prediction = _prediction_tokens(request.prediction, model)
    sequences: list[Sequence] = []
    for prompt in request.prompts:
        tokens = _prompt_tokens(prompt, model)
        limit = _generation_limit(len(tokens), request.max_tokens, model.info.context)
        echo = make_echo(request, prompt, tokens, model)
        sequences += [
            Sequence(request, len(sequences) + choice, tokens, limit, grammar=grammar, echo=echo, prediction=prediction)
            for choice in range(request.n)
        ]
    return SequenceGroup(key, sequences, (sequence.prompt for sequence in sequences[:: request.n]))


def _check_finite(sampling: Sampling) -> None:
    for name in (field.name for field in fields(sampling)):
        value = getattr(sampling, name)
        numbers = [bias for _, bias in value] if name == "logit_bias" else [value]
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise RequestError(f"{name} has a number that is not finite", param=name, code="not_finite")


def _prediction_tokens(text: str, model: Model) -> list[int]:
    """Return the tokens of a prediction, cut to the context, because no choice can be longer."""
    limit = model.info.context
    return model.tokenize(text[: limit * _BYTES_PER_TOKEN], special=False, begin=False)[:limit] if text else []


def admit_embedding(key: int, request: EmbeddingRequest, model: Model, limits: EmbeddingLimits) -> EmbeddingJob:
    """Tokenise and validate an embedding request, and return its job. May take long.

    Raises:
        RequestError: The request can never be served.
    """
    return EmbeddingJob(key, request.id, [_input_tokens(one, model, limits.longest) for one in request.inputs])


def _input_tokens(one: EmbeddingInput, model: Model, longest: int) -> list[int]:
    if isinstance(one, str) and _begins_too_long(one, model, longest):
        raise _too_long_to_embed(longest, f"at least {longest + 1}")
    tokens = model.tokenize(one) if isinstance(one, str) else list(one)
    if not tokens:
        raise RequestError("an input is empty", param="input", code="empty_input")
    check_ids(tokens, model.info.vocabulary, "input")
    if len(tokens) > longest:
        raise _too_long_to_embed(longest, str(len(tokens)))
    return tokens


def _too_long_to_embed(longest: int, count: str) -> RequestError:
    return RequestError(
        f"This model embeds texts of {longest} tokens at most. However, an input has {count} tokens.",
        param="input",
        code="context_length_exceeded",
    )


def _prompt_tokens(prompt: Prompt, model: Model) -> list[int]:
    _check_beginnings(prompt, model)
    tokens = _tokens(prompt, model)
    if not tokens:
        raise RequestError("the prompt is empty", param="prompt", code="empty_prompt")
    check_ids(tokens, model.info.vocabulary, "prompt")
    return tokens


def _tokens(prompt: Prompt, model: Model) -> list[int]:
    match prompt:
        case str():
            return model.tokenize(prompt)
        case PromptText():
            return model.tokenize_parts(prompt)
        case Infill():
            return model.infill(prompt.prefix, prompt.suffix)
    return list(prompt)


def _check_beginnings(prompt: Prompt, model: Model) -> None:
    context = model.info.context
    if any(_begins_too_long(text, model, context) for text in _texts(prompt)):
        raise RequestError(
            f"This model's maximum context length is {context} tokens. However, the prompt has at least {context + 1} "
            "tokens. Please reduce it.",
            param="prompt",
            code="context_length_exceeded",
        )


def _texts(prompt: Prompt) -> tuple[str, ...]:
    match prompt:
        case str() | PromptText():
            return (text_of(prompt),)
        case Infill():
            return prompt.prefix, prompt.suffix
    return ()


def _begins_too_long(text: str, model: Model, limit: int) -> bool:
    """Return True if the beginning of a text alone has too many tokens. Tokenising a long text delays other requests.

    The beginning must have twice `limit` tokens, so that the tokens next to the cut make no difference.
    """
    size = _BYTES_PER_TOKEN * limit
    if len(text) <= size and len(text.encode()) <= size:
        return False
    beginning = text[:size].encode()[:size].decode(errors="ignore")
    return len(model.tokenize(beginning)) > 2 * limit


def _generation_limit(prompt: int, max_tokens: int | None, context: int) -> int:
    """Return the maximum number of tokens of a choice.

    Raises:
        RequestError: `max_tokens` does not fit into the context. Thus `length` always means the caller's own limit.
    """
    wanted = 1 if max_tokens is None else max_tokens
    if prompt + wanted > context:
        raise RequestError(
            f"This model's maximum context length is {context} tokens. However, you requested {prompt + wanted} "
            f"tokens ({prompt} in the prompt; {wanted} for the completion). Please reduce one of them.",
            param="prompt" if prompt >= context else "max_tokens",
            code="context_length_exceeded",
        )
    return context - prompt if max_tokens is None else max_tokens


def check_ids(tokens: Iterable[int], vocabulary: int, param: str) -> None:
    """Check the range of token ids, because llama.cpp would abort the process for an invalid one.

    Raises:
        RequestError: An id is out of range.
    """
    wrong = next((token for token in tokens if not 0 <= token < vocabulary), None)
    if wrong is not None:
        raise RequestError(
            f"token id {wrong} is out of range: this model has ids 0 to {vocabulary - 1}",
            param=param,
            code="token_out_of_range",
        )
