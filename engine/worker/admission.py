"""Validation and tokenisation of generation requests, before they are queued.

A request is first checked for every fault that is found at no cost. What costs more comes later, in pieces: the
beginnings of long texts, the texts, the grammar.
"""

import math
from collections.abc import Collection

from engine.core.group import TOO_MANY_DETAILS, SequenceGroup
from engine.core.model import Model
from engine.core.output.echo import make_echo
from engine.core.reasoning_budget import ReasoningBudget
from engine.core.sequence import Sequence
from engine.core.window import ContextWindow
from engine.errors import RequestError
from engine.prompt import Infill, Prompt, PromptText, text_of
from engine.request import GenerationRequest, Grammar, Reasoning, Sampling
from engine.worker.checkpoints import find_checkpoints
from engine.worker.long_texts import beginning, begins_too_long
from engine.worker.slices import SHORT_TEXT, Effort, Slices, effort_of_text


def admit(key: int, request: GenerationRequest, model: Model) -> Slices[SequenceGroup]:
    """Validate and tokenise a generation request, and return its sequences.

    Raises:
        RequestError: The request can never be served.
    """
    _check_numbers(request, model)
    for prompt in request.prompts:
        _check_prompt(prompt, request, model)
    prompts = yield from _tokenise_prompts(request, model)
    grammar = yield from _compile(request.grammar, model)
    yield from _prepare(request.sampling, model)
    prediction = yield from _prediction_tokens(request.prediction, model)
    ending = yield from _reasoning_end(request.reasoning, model)
    sequences: list[Sequence] = []
    for prompt, tokens in zip(request.prompts, prompts, strict=True):
        yield effort_of_text(len(tokens))
        limit = _generation_limit(tokens, request, model)
        echo = make_echo(request, prompt, tokens, model)
        checkpoints = yield from _checkpoints(prompt, tokens, model)
        sequences += [
            Sequence(
                request,
                len(sequences) + choice,
                tokens,
                limit,
                grammar=grammar,
                reasoning=ReasoningBudget(request.reasoning, ending) if request.reasoning and ending else None,
                echo=echo,
                prediction=prediction,
                checkpoints=checkpoints,
                window=_window(request, tokens, model) if model.info.shifts else None,
            )
            for choice in range(request.n)
        ]
    group = SequenceGroup(key, request, sequences)
    if group.too_detailed:  # already with its echo
        raise RequestError(TOO_MANY_DETAILS, param="logprobs", code="too_large")
    return group


def check_ids(tokens: Collection[int], vocabulary: int, param: str) -> None:
    """Check the range of token ids, because llama.cpp would abort the process for an invalid one.

    Raises:
        RequestError: An id is out of range.
    """
    wrong = next((end(tokens) for end in (min, max) if tokens and not 0 <= end(tokens) < vocabulary), None)
    if wrong is not None:
        raise RequestError(
            f"token id {wrong} is out of range: this model has ids 0 to {vocabulary - 1}",
            param=param,
            code="token_out_of_range",
        )


def _check_numbers(request: GenerationRequest, model: Model) -> None:
    _check_finite(request.sampling)
    check_ids([token for token, _ in request.sampling.logit_bias], model.info.vocabulary, "logit_bias")
    check_ids(request.stop_tokens, model.info.vocabulary, "stop_token_ids")
    _check_adapters(request, model)
    if request.max_tokens is not None and request.sampling.min_tokens > request.max_tokens:
        message = f"min_tokens {request.sampling.min_tokens} is more than the token limit of {request.max_tokens}"
        raise RequestError(message, param="min_tokens", code="invalid_value")


def _check_finite(sampling: Sampling) -> None:
    values = ((name, getattr(sampling, name)) for name in sampling.__struct_fields__)
    for name, value in (*values, *(("logit_bias", bias) for _, bias in sampling.logit_bias)):
        if isinstance(value, float) and not math.isfinite(value):
            raise RequestError(f"{name} has a number that is not finite", param=name, code="not_finite")


def _check_adapters(request: GenerationRequest, model: Model) -> None:
    for id_, scale in request.adapters or ():
        if not 0 <= id_ < model.info.adapters:
            known = f"the ids are 0 to {model.info.adapters - 1}" if model.info.adapters else "this model has none"
            raise RequestError(f"there is no LoRA adapter {id_}: {known}", param="lora", code="unknown_adapter")
        if not math.isfinite(scale):
            raise RequestError("lora has a scale that is not finite", param="lora", code="not_finite")


def _check_prompt(prompt: Prompt, request: GenerationRequest, model: Model) -> None:
    """Check what is known of a prompt before it is tokenised."""
    if isinstance(prompt, tuple):
        _check_tokens(prompt, model)
        _generation_limit(prompt, request, model)
    elif _size(prompt) > SHORT_TEXT and not model.info.shifts:
        _check_max_tokens(request.max_tokens, model.info.context)


def _check_tokens(tokens: Collection[int], model: Model) -> None:
    if not tokens:
        raise RequestError("the prompt is empty", param="prompt", code="empty_prompt")
    check_ids(tokens, model.info.vocabulary, "prompt")


def _tokenise_prompts(request: GenerationRequest, model: Model) -> Slices[list[list[int]]]:
    """Return the tokens of each prompt. The shortest are tokenised first: one of them may be refused."""
    found: dict[int, list[int]] = {}
    for index, prompt in sorted(enumerate(request.prompts), key=lambda item: _size(item[1])):
        tokens = yield from _prompt_tokens(prompt, model)
        _check_tokens(tokens, model)
        _generation_limit(tokens, request, model)
        found[index] = tokens
    return [found[index] for index in range(len(request.prompts))]


def _prompt_tokens(prompt: Prompt, model: Model) -> Slices[list[int]]:
    if isinstance(prompt, tuple):
        return list(prompt)
    yield from _check_beginnings(prompt, model)
    yield effort_of_text(_size(prompt))
    match prompt:
        case Infill(prefix, suffix):
            return model.infill(prefix, suffix)
        case PromptText():
            return model.tokenize_parts(prompt)
    return model.tokenize(prompt)


def _checkpoints(prompt: Prompt, tokens: list[int], model: Model) -> Slices[tuple[int, ...]]:
    if not model.traits.needs_checkpoints:
        return ()
    yield effort_of_text(_size(prompt))
    return find_checkpoints(prompt, tokens, model)


def _texts(prompt: Prompt) -> tuple[str, ...]:
    """Return the texts to tokenise."""
    match prompt:
        case tuple():
            return ()
        case Infill(prefix, suffix):
            return prefix, suffix
    return (text_of(prompt),)


def _size(prompt: Prompt) -> int:
    """Return the number of characters to tokenise."""
    return sum(map(len, _texts(prompt)))


def _check_beginnings(prompt: Prompt, model: Model) -> Slices[None]:
    context = model.info.context
    for text in _texts(prompt):
        if (yield from begins_too_long(text, model, context)):
            raise RequestError(
                f"This model's maximum context length is {context} tokens. However, the prompt has at least "
                f"{context + 1} tokens. Please reduce it.",
                param="prompt",
                code="context_length_exceeded",
                figures=_figures(context + 1, context),
            )


def _check_max_tokens(max_tokens: int | None, context: int) -> None:
    """Refuse `max_tokens` that leaves no room for a prompt of a single token."""
    if max_tokens is not None and max_tokens >= context:
        raise RequestError(
            f"This model's maximum context length is {context} tokens. However, you requested {max_tokens} tokens for "
            "the completion alone. Please reduce max_tokens.",
            param="max_tokens",
            code="context_length_exceeded",
        )


def _generation_limit(tokens: Collection[int], request: GenerationRequest, model: Model) -> int:
    """Return the maximum number of tokens of a choice.

    Raises:
        RequestError: The prompt does not fit into the context, or `max_tokens` does not and the context is not shifted.
            Thus the caller's own limit is never cut.
    """
    prompt, context = len(tokens), model.info.context
    wanted = 1 if request.max_tokens is None else request.max_tokens
    if prompt + (min(wanted, 1) if model.info.shifts else wanted) > context:
        raise RequestError(
            f"This model's maximum context length is {context} tokens. However, you requested {prompt + wanted} "
            f"tokens ({prompt} in the prompt; {wanted} for the completion). Please reduce one of them.",
            param="prompt" if prompt >= context else "max_tokens",
            code="context_length_exceeded",
            figures=_figures(prompt, context),
        )
    if request.max_tokens is not None:
        return request.max_tokens
    if (default := request.default_max_tokens) is None:
        return context - prompt
    return default if model.info.shifts else min(context - prompt, default)


def _figures(prompt: int, context: int) -> dict[str, int]:
    return {"n_prompt_tokens": prompt, "n_ctx": context}


def _window(request: GenerationRequest, tokens: Collection[int], model: Model) -> ContextWindow:
    """Return what a sequence discards when its slot is full."""
    keep = len(tokens) if request.keep < 0 else request.keep
    return ContextWindow(model.info.context, keep + len(model.tokenize("")), request.discard)


def _compile(grammar: Grammar | None, model: Model) -> Slices[object | None]:
    if grammar is None:
        return None
    known = model.compiled(grammar)
    if known is not None:
        return known
    yield Effort.COMPILE
    return model.compile(grammar)


def _prepare(sampling: Sampling, model: Model) -> Slices[None]:
    if sampling.dry_multiplier:
        yield Effort.COMPILE
        model.prepare(sampling)


def _reasoning_end(reasoning: Reasoning | None, model: Model) -> Slices[list[int]]:
    """Return the tokens that end reasoning; none if neither a limit nor the client may end it."""
    if reasoning is None or (reasoning.budget is None and not reasoning.controlled):
        return []
    yield effort_of_text(len(reasoning.message))
    message = model.tokenize(reasoning.message, special=False, begin=False) if reasoning.message else []
    return [*message, *model.tokenize(reasoning.closing, begin=False)]


def _prediction_tokens(text: str, model: Model) -> Slices[list[int]]:
    """Return the tokens of a prediction, cut to the context, because no choice can be longer."""
    if not text:
        return []
    limit = model.info.context
    text = yield from beginning(text, model, limit)
    yield effort_of_text(len(text))
    return model.tokenize(text, special=False, begin=False)[:limit]
