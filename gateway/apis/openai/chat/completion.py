"""Encoder of a whole chat completion."""

import time
from uuid import uuid4

from engine import Finished
from gateway.apis.answers.prompt_ids import PromptIds
from gateway.apis.answers.timings import timings
from gateway.apis.openai.chat.answer import ChatChoice, ChatCompletion, ChatHead
from gateway.apis.openai.chat.call import ChatOptions
from gateway.apis.openai.chat.logprobs import chat_logprobs
from gateway.apis.openai.chat.message import finish_reason, read_message
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
        "system_fingerprint": fingerprint,
    }
    if options.service_tier:
        head["service_tier"] = "default"
    return head


def completion(
    head: ChatHead, options: ChatOptions, prompt: ChatPrompt, ids: PromptIds, answer: GenerationResult
) -> ChatCompletion:
    """Return the whole completion. `ids` has the prompt's token ids if the request asks for them."""
    whole: ChatCompletion = {
        "id": head["id"],
        "object": "chat.completion",
        **head,
        "choices": [_choice(options, prompt, end) for end in answer.outcomes],
        "usage": usage(answer.prompt_tokens, answer.outcomes),
    }
    if options.timings:
        whole["timings"] = timings(answer.prompt_tokens, answer.outcomes)
    if ids:
        whole["prompt_token_ids"] = ids[0]
    return whole


def _choice(options: ChatOptions, prompt: ChatPrompt, end: Finished) -> ChatChoice:
    message = read_message(prompt, end.text, deprecated=options.deprecated_calls)
    called = "tool_calls" in message or "function_call" in message
    choice: ChatChoice = {
        "index": end.choice,
        "message": message,
        "logprobs": chat_logprobs(end.details) if options.logprobs else None,
        "finish_reason": finish_reason(end, called=called, deprecated=options.deprecated_calls),
        "stop_reason": end.stop,
    }
    if options.token_ids:
        choice["token_ids"] = [detail.id for detail in end.details]
    return choice
