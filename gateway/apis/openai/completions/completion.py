"""Encoder of a whole completion."""

import time
from collections.abc import Iterator
from uuid import uuid4

from engine import Finished
from gateway.apis.answers.legacy_logprobs import LegacyLogprobsEncoder, mean_logprob
from gateway.apis.answers.prompt_ids import PromptIds
from gateway.apis.answers.timings import timings
from gateway.apis.openai.completions.answer import Completion, CompletionChoice, CompletionHead
from gateway.apis.openai.completions.call import CompletionOptions
from gateway.apis.openai.usage import usage
from gateway.serving.generations import GenerationResult


def completion_head(model: str, fingerprint: str) -> CompletionHead:
    """Return the fields that a whole completion and each chunk of a stream share.

    Args:
        model: the model's name in answers.
        fingerprint: fingerprint of the model and the program.
    """
    return {
        "id": f"cmpl-{uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": fingerprint,
    }


def completion(
    head: CompletionHead, options: CompletionOptions, ids: PromptIds, answer: GenerationResult
) -> Completion:
    """Return the whole completion. Its usage includes generated choices that are not returned."""
    whole: Completion = {
        **head,
        "choices": [_choice(index, end, options, ids) for index, end in enumerate(best(answer, options))],
        "usage": usage(answer.prompt_tokens, answer.outcomes),
    }
    if options.timings:
        whole["timings"] = timings(answer.prompt_tokens, answer.outcomes)
    return whole


def best(answer: GenerationResult, options: CompletionOptions) -> Iterator[Finished]:
    """Yield the choices to return: for each prompt, the `n` with the highest mean log-probability, the best first."""
    if options.choices == options.n:
        yield from answer.outcomes
        return
    for index, prompt_tokens in enumerate(answer.prompt_tokens):
        ends = answer.outcomes[index * options.choices : (index + 1) * options.choices]
        echoed = prompt_tokens if options.echo else 0
        means = [mean_logprob(end.details[echoed:]) for end in ends]
        ranking = sorted(range(len(ends)), key=means.__getitem__, reverse=True)
        yield from (ends[rank] for rank in ranking[: options.n])


def _choice(index: int, end: Finished, options: CompletionOptions, ids: PromptIds) -> CompletionChoice:
    choice: CompletionChoice = {
        "index": index,
        "text": end.text,
        "logprobs": LegacyLogprobsEncoder().encode(end.details) if options.logprobs else None,
        "finish_reason": end.reason,
        "stop_reason": end.stop,
    }
    if options.token_ids:
        choice["token_ids"] = [detail.id for detail in end.details]
        choice["prompt_token_ids"] = ids[index // options.n]
    return choice
