"""Encoder of a whole completion."""

import time
from collections.abc import Iterator, Sequence
from uuid import uuid4

import anyio.lowlevel

from engine import Finished
from gateway.apis.answers.legacy_logprobs import LegacyLogprobsEncoder, mean_logprob
from gateway.apis.answers.pieces import HOLE, array_of_pieces, filled
from gateway.apis.answers.prompt_ids import PromptIds
from gateway.apis.answers.timings import timings
from gateway.apis.openai.completions.answer import Completion, CompletionChoice, CompletionHead
from gateway.apis.openai.completions.call import CompletionOptions
from gateway.apis.openai.usage import usage
from gateway.serving.generations import GenerationResult


def completion_head(options: CompletionOptions, model: str, fingerprint: str) -> CompletionHead:
    """Return the fields that a whole completion and each chunk of a stream share.

    Args:
        options: options for the shape of the answer.
        model: the model's name in answers.
        fingerprint: fingerprint of the model and the program.
    """
    return {
        "id": f"cmpl-{uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": options.report.fingerprint(fingerprint),
    }


async def completion(
    head: CompletionHead, options: CompletionOptions, ids: PromptIds, answer: GenerationResult
) -> Iterator[bytes]:
    """Return the JSON of the whole completion in pieces. Its usage includes generated choices that are not returned."""
    whole: Completion = {**head, "choices": HOLE, "usage": usage(answer.prompt_tokens, answer.outcomes)}
    if options.report.timings:
        whole["timings"] = timings(answer.prompt_tokens, answer.outcomes)
    choices = enumerate(await best(answer, options))
    return filled(whole, array_of_pieces(_choice(index, end, options, ids) for index, end in choices))


async def best(answer: GenerationResult, options: CompletionOptions) -> Sequence[Finished]:
    """Return the choices to send: for each prompt, the `n` with the highest mean log-probability, the best first."""
    if options.choices == options.n:
        return answer.outcomes
    chosen: list[Finished] = []
    for index, prompt_tokens in enumerate(answer.prompt_tokens):
        ends = answer.outcomes[index * options.choices : (index + 1) * options.choices]
        means = await _means(ends, prompt_tokens if options.echo else 0)
        ranking = sorted(range(len(ends)), key=means.__getitem__, reverse=True)
        chosen += (ends[rank] for rank in ranking[: options.n])
    return chosen


async def _means(ends: Sequence[Finished], echoed: int) -> list[float]:
    """Return the mean log-probability of each choice, without the tokens of an echoed prompt."""
    means = []
    for end in ends:
        means.append(mean_logprob(end.details[echoed:]))
        await anyio.lowlevel.checkpoint()
    return means


def _choice(index: int, end: Finished, options: CompletionOptions, ids: PromptIds) -> Iterator[bytes]:
    choice: CompletionChoice = {
        "index": index,
        "text": end.text,
        "logprobs": HOLE if options.logprobs else None,
        "finish_reason": end.reason,
        "stop_reason": end.stop,
    }
    if options.report.token_ids:
        choice["token_ids"] = [detail.id for detail in end.all_details]
        choice["prompt_token_ids"] = ids[index // options.n]
    logprobs = (LegacyLogprobsEncoder().encode(end.all_details),) if options.logprobs else ()
    return filled(choice, *logprobs)
