"""Truncation of a conversation that does not fit: `truncation: "auto"`."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate

from engine import Engine, RequestError, text_of
from gateway.apis.answers.input_tokens import count_tokens
from gateway.apis.openai.responses.encoded import EncodedItem, ItemOutline
from gateway.chat.conversation import ChatPrompt
from gateway.chat.template_capabilities import INSTRUCTIONS

_ROOM = 8
"""An answer without a limit of its own gets at least this part of the context."""
_BYTES_PER_CHARACTER = 4
_SPARE = 16
"""Tokens that a tokeniser may add to a text."""
_CHARACTERS_PER_TOKEN = 16
"""Upper bound of the average. The engine refuses longer prompts without counting."""

Render = Callable[[Iterable[EncodedItem]], Awaitable[ChatPrompt]]
"""Renders the prompt of the instructions and these items."""


@dataclass(frozen=True, slots=True)
class PromptRoom:
    """Room for the prompt in the context of a model."""

    engine: Engine
    """The model's engine, which counts the tokens."""
    context: int
    """Tokens of a slot."""
    client: str
    """The client on whose behalf tokens are counted."""
    output: int | None = None
    """Tokens that the answer may have; None if it has no limit."""

    async def holds(self, prompt: ChatPrompt) -> bool:
        """Return whether a prompt leaves room for the answer. Counts only where the length does not decide."""
        limit = self.context - (self.context // _ROOM if self.output is None else self.output)
        characters = len(text_of(prompt.text))
        if characters * _BYTES_PER_CHARACTER + _SPARE <= limit:
            return True
        if characters > limit * _CHARACTERS_PER_TOKEN:
            return False
        return await count_tokens(self.engine, prompt.text, self.client, "input") <= limit


async def truncated(whole: ChatPrompt, items: Sequence[EncodedItem], render: Render, room: PromptRoom) -> ChatPrompt:
    """Return the prompt of a conversation without as many of its first items as needed.

    Returns the whole prompt if it fits, and also if no part fits: the engine then refuses it. Renders and counts a
    number of prompts that grows with the logarithm of the number of items.

    Args:
        whole: prompt of all items.
        items: items of the conversation, behind its instructions.
        render: renders a part of the items.
        room: the room for the prompt.
    """
    if await room.holds(whole):
        return whole
    outlines = [item.outline() for item in items]

    async def behind(cut: int) -> ChatPrompt | None:
        prompt = None
        with suppress(RequestError):  # a template may refuse what is no whole conversation
            prompt = await render(_kept(items, outlines, cut))
        return prompt if prompt is not None and await room.holds(prompt) else None

    for cuts in find_cuts(outlines):
        if (prompt := await _longest(cuts, behind)) is not None:
            return prompt
    return whole


async def _longest(cuts: Sequence[int], behind: Callable[[int], Awaitable[ChatPrompt | None]]) -> ChatPrompt | None:
    """Return the prompt behind the first cut where it fits, or None. `behind` returns None where it does not."""
    best = None
    while cuts:
        middle = len(cuts) // 2
        if (prompt := await behind(cuts[middle])) is not None:
            best, cuts = prompt, cuts[:middle]
        else:
            cuts = cuts[middle + 1 :]
    return best


def find_cuts(items: Sequence[ItemOutline]) -> tuple[list[int], list[int]]:
    """Return the indices of the items with which a truncated conversation may begin, from the first.

    They are the beginnings of turns. If none of them is enough, they are all items of the last turn that do not part a
    call from its output, or reasoning from what follows it. Templates may refuse these.
    """
    whole = _inseparable(items)
    turns = [
        at for at in range(1, len(items)) if items[at].role == "user" and items[at - 1].role != "user" and not whole[at]
    ]
    last = turns[-1] if turns else 0
    return turns, [at for at in range(last + 1, len(items)) if not whole[at]]


def _inseparable(items: Sequence[ItemOutline]) -> list[int]:
    """Return for each item the number of calls and outputs, and of reasonings, that a cut before it would part."""
    calls: dict[str, int] = {}
    changes = [0] * (len(items) + 2)
    for at, item in enumerate(items):
        if item.type.endswith("_call"):
            calls[item.call_id] = at
        begin = calls.get(item.call_id, at) if item.type.endswith("_call_output") else at
        end = at + (item.type == "reasoning")
        changes[begin + 1] += 1
        changes[end + 1] -= 1
    return list(accumulate(changes))[: len(items)]


def _kept(items: Sequence[EncodedItem], outlines: Sequence[ItemOutline], cut: int) -> list[EncodedItem]:
    """Return the items behind a cut, and the instructions before it."""
    before = [item for item, outline in zip(items[:cut], outlines, strict=False) if outline.role in INSTRUCTIONS]
    return [*before, *items[cut:]]
