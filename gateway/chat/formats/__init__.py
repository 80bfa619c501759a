"""Output formats of model families, one module each. The markers in a chat template select the format."""

import re
from collections.abc import Callable, Mapping

from gateway.chat.formats import deepseek, glm, harmony, hermes, llama, mistral, qwen_coder
from gateway.chat.formats.deepseek import DeepSeek
from gateway.chat.formats.format import Format
from gateway.chat.formats.gemma import FUNCTION_GEMMA, GEMMA_4, TURN, Gemma, ToolCode
from gateway.chat.formats.glm import Glm
from gateway.chat.formats.harmony import Harmony
from gateway.chat.formats.hermes import Hermes, Plain
from gateway.chat.formats.llama import Llama
from gateway.chat.formats.mistral import Mistral
from gateway.chat.formats.parser import Tags
from gateway.chat.formats.qwen_coder import QwenCoder

__all__ = ["Format", "choose"]

_REASONING_TAGS = (Tags("<think>", "</think>"), Tags("[THINK]", "[/THINK]"), Tags("<|channel>thought", "<channel|>"))
_TOOLS = re.compile(r"\btools\b")
_NO_TOKENS: Mapping[str, int] = {}


def choose(template: str, special_tokens: Mapping[str, int] = _NO_TOKENS) -> Format:
    """Return the format of a model by the markers in its chat template, the most specific marker first.

    Args:
        template: the template's source.
        special_tokens: ids of the model's special tokens by their names, which grammars need.
    """
    reasoning_tags = next((tags for tags in _REASONING_TAGS if tags.closing in template), None)
    made_by_marker: tuple[tuple[str, Callable[[], Format]], ...] = (
        (harmony.CHANNEL, lambda: Harmony(special_tokens)),
        (deepseek.TAG, lambda: DeepSeek(special_tokens, reasoning_tags, typed=deepseek.BLOCK in template)),
        (mistral.TAG, lambda: Mistral(special_tokens, reasoning_tags, listed=mistral.ARGUMENTS not in template)),
        (FUNCTION_GEMMA.call.opening, lambda: Gemma(special_tokens, reasoning_tags, FUNCTION_GEMMA)),
        (GEMMA_4.call.opening, lambda: Gemma(special_tokens, reasoning_tags, GEMMA_4)),
        (glm.KEY, lambda: Glm(special_tokens, reasoning_tags)),
        (qwen_coder.FUNCTION, lambda: QwenCoder(special_tokens, reasoning_tags)),
        (hermes.OPENING, lambda: Hermes(special_tokens, reasoning_tags)),
    )
    made = (make for marker, make in made_by_marker if marker in template)
    return next(made, lambda: _without_markers(template, special_tokens, reasoning_tags))()


def _without_markers(template: str, special_tokens: Mapping[str, int], reasoning_tags: Tags | None) -> Format:
    """Return the format of a model without markers for calls, by the markers of its turns and its mentions of tools."""
    shows_tools = _TOOLS.search(template) is not None
    pythonic = llama.PYTHONIC in template
    if shows_tools and (pythonic or any(marker in template for marker in llama.MARKERS)):
        return Llama(special_tokens, reasoning_tags, pythonic=pythonic)
    if TURN in template and not shows_tools:
        return ToolCode(special_tokens, reasoning_tags)
    return Plain(special_tokens, reasoning_tags, shows_tools=shows_tools)
