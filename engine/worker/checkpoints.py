"""Choice of the checkpoints of a prompt: the numbers of tokens up to which later prompts are likely to repeat it."""

from collections.abc import Iterable

from engine.core.kv.prefix import common_prefix
from engine.core.model import Model
from engine.prompt import Prompt, PromptText

WORTH_A_STEP = 64
"""Tokens. Fewer are not computed in a step of their own for the sake of a checkpoint."""
_NEAR = 16
"""Tokens. So near to another checkpoint, none is worth its memory."""
_MOST_STRIDES = 4
_SHORTEST_STRIDE = 256
"""Tokens between checkpoints of a prompt of which nothing is known. Long prompts have longer strides."""
_LAST = 8
"""Tokens after the last checkpoint of such a prompt. The next prompt may be tokenised otherwise where this one ends,
and the same prompt computes its last token again."""


def find_checkpoints(prompt: Prompt, tokens: list[int], model: Model) -> tuple[int, ...]:
    """Return numbers of tokens, ascending. May take as long as the tokenisation of the prompt."""
    if isinstance(prompt, PromptText) and prompt.turns:
        places = [_tokens_before(at, prompt, tokens, model) for at in prompt.turns]
    else:
        stride = _SHORTEST_STRIDE
        while stride * (_MOST_STRIDES + 1) <= len(tokens):
            stride *= 2
        places = [*range(stride, len(tokens) - _LAST, stride), len(tokens) - _LAST]
    return _worthwhile(places, len(tokens))


def _tokens_before(at: int, prompt: PromptText, tokens: list[int], model: Model) -> int:
    """Return the number of a prompt's tokens that end before a position of its text, whatever follows there.

    The shorter side of the text is tokenised: usually the prompt is cut beside a control token, where the tokens of
    both sides are those of the whole text.
    """
    before, after = prompt.split(at)
    if 2 * at > len(prompt.text):
        end = model.tokenize_parts(after, begin=False)
        if end and tokens[-len(end) :] == end:
            return len(tokens) - len(end)
    return common_prefix(model.tokenize_parts(before), tokens, len(tokens))


def _worthwhile(places: Iterable[int], size: int) -> tuple[int, ...]:
    """Return the places that are worth a step of their own, and the end of the prompt, which needs no such step."""
    kept: list[int] = []
    for place in sorted(places):
        if place >= WORTH_A_STEP + (kept[-1] if kept else 0):
            kept.append(place)
    if size >= max(WORTH_A_STEP, _NEAR + (kept[-1] if kept else 0)):
        kept.append(size)
    return tuple(kept)
