"""Output formats of model families, one module each. The markers in a chat template select the format."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from gateway.chat.formats import (
    cohere,
    deepseek,
    glm,
    harmony,
    hermes,
    kimi,
    kimi_k3,
    listed_calls,
    llama,
    minimax_m3,
    mistral,
    tag_calls,
)
from gateway.chat.formats.cohere import Cohere
from gateway.chat.formats.deepseek import DeepSeek
from gateway.chat.formats.format import Format
from gateway.chat.formats.functionary import Functionary
from gateway.chat.formats.gemma import FUNCTION_GEMMA, GEMMA_4, TURN, Gemma, ToolCode
from gateway.chat.formats.gigachat import MARK, SEPARATOR, GigaChat
from gateway.chat.formats.glm import Glm
from gateway.chat.formats.harmony import Harmony
from gateway.chat.formats.hermes import Hermes, Plain
from gateway.chat.formats.hunyuan import NAME_END, SUFFIX, Hunyuan
from gateway.chat.formats.kimi import Kimi
from gateway.chat.formats.kimi_k3 import KimiK3
from gateway.chat.formats.listed_calls import Apertus, Apriel, Granite, Lfm2, ListedCalls
from gateway.chat.formats.llama import Llama
from gateway.chat.formats.minimax_m3 import MiniMaxM3
from gateway.chat.formats.mistral import Mistral
from gateway.chat.formats.muse import BLOCK, Muse
from gateway.chat.formats.olmo import CALLS, Olmo
from gateway.chat.formats.parser import Tags
from gateway.chat.formats.recipients import TO_ALL, Recipients
from gateway.chat.formats.solar import CALL, Solar
from gateway.chat.formats.tag_calls import TagCalls

__all__ = ["Format", "FormatKey", "create", "recognize"]

_REASONING_TAGS = (
    Tags("<think>", "</think>"),
    Tags("<seed:think>", "</seed:think>"),
    minimax_m3.REASONING,
    listed_calls.APRIEL_REASONING,
    Tags("[THINK]", "[/THINK]"),
    Tags("<|inner_prefix|>", "<|inner_suffix|>"),
    Tags("<|channel>thought", "<channel|>"),
    Tags("<|START_THINKING|>", "<|END_THINKING|>"),
)
_TOOLS = re.compile(r"""(?<![\w.'"])tools\b(?!['"])""")
"""The variable with the tools. Phi-4-mini's template has only a field of this name in messages."""
_WITHOUT_TOOLS = "-without-tools"
"""Ends the name of a format whose template does not show the tools, so that the system message does."""
_NO_TOKENS: Mapping[str, int] = {}

_FORMATS: Mapping[str, Callable[[Mapping[str, int], Tags | None], Format]] = {
    "harmony": lambda tokens, _tags: Harmony(tokens),
    "solar": lambda tokens, _tags: Solar(tokens),
    "muse": lambda tokens, _tags: Muse(tokens),
    "deepseek": partial(DeepSeek, typed=False),
    "deepseek-typed": partial(DeepSeek, typed=True),
    "mistral": partial(Mistral, listed=False),
    "mistral-listed": partial(Mistral, listed=True),
    "function-gemma": partial(Gemma, markers=FUNCTION_GEMMA),
    "gemma-4": partial(Gemma, markers=GEMMA_4),
    "gemma-3": ToolCode,
    "glm": Glm,
    "hunyuan": Hunyuan,
    "hunyuan-open": partial(Hunyuan, suffix=SUFFIX),
    "kimi": Kimi,
    "kimi-k3": lambda tokens, _tags: KimiK3(tokens),
    "dsml-functions": partial(TagCalls, markup=tag_calls.dsml(tag_calls.FUNCTION_CALLS)),
    "dsml": partial(TagCalls, markup=tag_calls.dsml("tool_calls")),
    "minimax-m3": MiniMaxM3,
    "minimax": partial(TagCalls, markup=tag_calls.MINIMAX),
    "minicpm": partial(TagCalls, markup=tag_calls.MINICPM),
    "seed": partial(TagCalls, markup=tag_calls.SEED),
    "qwen-coder": partial(TagCalls, markup=tag_calls.QWEN_CODER),
    "functionary": Functionary,
    "functionary-3.2": lambda tokens, _tags: Recipients(tokens),
    "cohere": Cohere,
    "gigachat": partial(GigaChat, by_role=False),
    "gigachat-3": partial(GigaChat, by_role=True),
    "nemotron": partial(ListedCalls, tags=listed_calls.NEMOTRON),
    "apriel": Apriel,
    "granite": Granite,
    "apertus": Apertus,
    "lfm2": Lfm2,
    "olmo": Olmo,
    "hermes": Hermes,
    "llama": partial(Llama, pythonic=False),
    "llama-pythonic": partial(Llama, pythonic=True),
    "plain": Plain,
}


@dataclass(frozen=True, slots=True)
class FormatKey:
    """Description of a format, from which any process can create it."""

    name: str
    """Name of the family, and of its variant."""
    reasoning_tags: Tags | None
    """Tags around reasoning, if the model reasons."""


def recognize(template: str) -> FormatKey:
    """Return the format of a model by the markers in its chat template's source, the most specific marker first."""
    names = (
        (harmony.CHANNEL, "harmony"),
        (BLOCK.opening, "muse"),
        (CALL, "solar"),
        (deepseek.TAG, "deepseek-typed" if deepseek.BLOCK in template else "deepseek"),
        (mistral.TAG, "mistral" if mistral.ARGUMENTS in template else "mistral-listed"),
        (FUNCTION_GEMMA.call.opening, "function-gemma"),
        (GEMMA_4.call.opening, "gemma-4"),
        (cohere.ACTION.opening, "cohere"),
        (MARK, "gigachat"),
        (SEPARATOR, "gigachat-3"),
        (SUFFIX, "hunyuan-open"),
        (glm.KEY, "hunyuan" if NAME_END in template else "glm"),
        (kimi.SECTION, "kimi"),
        (kimi_k3.OPEN, "kimi-k3"),
        (tag_calls.DSML, "dsml-functions" if tag_calls.FUNCTION_CALLS in template else "dsml"),
        (minimax_m3.MARK, "minimax-m3"),
        (tag_calls.MINIMAX_BLOCK.opening, "minimax"),
        (tag_calls.SEED_BLOCK.opening, "seed"),
        (tag_calls.PARAM, "minicpm"),
        (tag_calls.FUNCTION, "qwen-coder" if tag_calls.PARAMETER in template else "functionary"),
        (TO_ALL, "functionary-3.2"),
        (listed_calls.NEMOTRON.opening, "nemotron"),
        (listed_calls.APRIEL_END, "apriel"),
        (listed_calls.GRANITE.opening, "granite"),
        (listed_calls.APERTUS.opening, "apertus"),
        *((marker, "lfm2") for marker in listed_calls.LFM2_MARKERS),
        (CALLS.opening, "olmo"),
        (hermes.OPENING, "hermes"),
    )
    found = next((name for marker, name in names if marker in template), None)
    reasoning_tags = next(
        (tags for tags in _REASONING_TAGS if tags.closing in template or tags.opening in template), None
    )
    return FormatKey(f"{found}{_shown(template)}" if found else _without_markers(template), reasoning_tags)


def _without_markers(template: str) -> str:
    """Return the format of a model without markers for calls, by the markers of its turns and its mentions of tools."""
    shows_tools = not _shown(template)
    pythonic = llama.PYTHONIC in template
    if shows_tools and (pythonic or any(marker in template for marker in llama.MARKERS)):
        return "llama-pythonic" if pythonic else "llama"
    if TURN in template and not shows_tools:
        return "gemma-3"
    return f"plain{_shown(template)}"


def _shown(template: str) -> str:
    """Return the end of a format's name by whether the template shows the tools."""
    return "" if _TOOLS.search(template) else _WITHOUT_TOOLS


def create(key: FormatKey, special_tokens: Mapping[str, int] = _NO_TOKENS) -> Format:
    """Return the format with this description.

    Args:
        key: the description, from `recognize`.
        special_tokens: ids of the model's special tokens by their names. Only grammars need them.
    """
    family = key.name.removesuffix(_WITHOUT_TOOLS)
    created = _FORMATS[family](special_tokens, key.reasoning_tags)
    created.shows_tools = family == key.name
    return created
