"""Fields of vLLM that would change an answer and are not supported."""

from collections.abc import Mapping
from typing import Any

UNSUPPORTED: Mapping[str, str] = {
    "allowed_token_ids": "is not supported: a grammar or logit_bias bounds what is generated",
    "bad_words": "is not supported: logit_bias suppresses tokens",
    "include_stop_str_in_output": "is not supported: an answer ends before its stop string",
    "prompt_logprobs": "is not supported: /v1/completions has echo with logprobs",
    "truncate_prompt_tokens": "is not supported here: a prompt that is too long is refused",
    "use_beam_search": "is not supported: this server samples",
}
"""Reason of the refusal for each field, by name."""
EMPTY: Mapping[str, Any] = {"bad_words": [], "include_stop_str_in_output": False, "use_beam_search": False}
"""vLLM's own values of fields that are not given, by name."""
