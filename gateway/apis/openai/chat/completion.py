"""Encoder of a whole chat completion."""

import time
from collections.abc import Iterator, Mapping
from uuid import uuid4

from engine import Finished
from gateway.apis.answers.pieces import HOLE, array_of_pieces, filled
from gateway.apis.answers.prompt_ids import PromptIds
from gateway.apis.answers.timings import timings
from gateway.apis.openai.chat.answer import ChatChoice, ChatCompletion, ChatHead, ChatMessage
from gateway.apis.openai.chat.call import ChatOptions
from gateway.apis.openai.chat.message import chat_logprobs, finish_reason, read_message
from gateway.apis.openai.usage import usage
from gateway.chat.conversation import ChatPrompt
from gateway.serving.generations import GenerationResult


def chat_head(options: ChatOptions, model: str, fingerprint: str) -> ChatHead:
    """Return the fields that a whole completion and each chunk of a stream share.

    Args:
        options: options for the shape of the answer.
        model: the model's name in answers.
        fingerprint: fingerprint of the model and the program.
    """
    head: ChatHead = {
        "id": f"chatcmpl-{uuid4().hex}",
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": options.report.fingerprint(fingerprint),
    }
    if options.service_tier:
        head["service_tier"] = "default"
    return head


async def completion(
    head: ChatHead,
    options: ChatOptions,
    prompt: ChatPrompt,
    ids: PromptIds,
    answer: GenerationResult,
    more: Mapping[str, object],
) -> Iterator[bytes]:
    """Return the JSON of the whole completion in pieces.

    `ids` has the prompt's ids if the request asks for them, and `more` further fields.
    """
    messages = [await read_message(prompt, end.text, deprecated=options.deprecated_calls) for end in answer.outcomes]
    whole: ChatCompletion = {
        "id": head["id"],
        "object": "chat.completion",
        **head,
        "choices": HOLE,
        "usage": usage(answer.prompt_tokens, answer.outcomes),
    }
    if options.report.timings:
        whole["timings"] = timings(answer.prompt_tokens, answer.outcomes)
    if ids:
        whole["prompt_token_ids"] = ids[0]
    choices = zip(messages, answer.outcomes, strict=True)
    return filled({**whole, **more}, array_of_pieces(_choice(options, *read, end) for read, end in choices))


def _choice(options: ChatOptions, message: ChatMessage, called: bool, end: Finished) -> Iterator[bytes]:
    choice: ChatChoice = {
        "index": end.choice,
        "message": message,
        "logprobs": HOLE if options.logprobs else None,
        "finish_reason": finish_reason(end, called=called, deprecated=options.deprecated_calls),
        "stop_reason": end.stop,
    }
    if options.report.token_ids:
        choice["token_ids"] = [detail.id for detail in end.details]
    return filled(choice, *((chat_logprobs(end.details),) if options.logprobs else ()))
