"""Conversations of clients: shared system prompts, turns and pauses. The same seed makes the same ones."""

import math
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random

TOKENS_PER_BLOCK = 64
"""Tokens of a block, at four bytes a token."""
_OWN = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Distributions of the conversations."""

    systems: int = 500
    """Different system prompts. Their popularity is Zipf's."""
    exponent: float = 1.0
    """Exponent of Zipf's law."""
    system_tokens: float = 800.0
    """Median tokens of a system prompt; log-normal."""
    user_tokens: float = 60.0
    """Median tokens of a message; log-normal."""
    answer_tokens: float = 100.0
    """Median tokens of an answer; log-normal."""
    turns: float = 5.0
    """Mean turns of a conversation; geometric."""
    pause: float = 20.0
    """Mean seconds between an answer and the next message; exponential."""
    context: int = 8192
    """Tokens at which a conversation ends."""


@dataclass(slots=True, eq=False)
class Conversation:
    """One conversation, with all its random choices made."""

    id: int
    """Number of the conversation."""
    system: int
    """Number of its system prompt."""
    shared: int
    """Tokens of its system prompt."""
    turns: list[tuple[int, int, float]]
    """Tokens of the prompt and of the answer of each turn, and the pause after it."""
    blocks: list[int] = field(default_factory=list)
    """Blocks of its longest prompt."""

    def prompt_blocks(self, tokens: int) -> tuple[int, ...]:
        """Return the blocks of its first tokens."""
        return tuple(self.blocks[: tokens // TOKENS_PER_BLOCK])


def conversations(workload: Workload, seed: int) -> Iterator[Conversation]:
    """Yield conversations without an end."""
    random = Random(seed)
    lengths = [_log_normal(random, workload.system_tokens, 0.8, 64, 4000) for _ in range(workload.systems)]
    popularity = list(accumulate(1 / rank**workload.exponent for rank in range(1, workload.systems + 1)))
    number = 0
    while True:
        number += 1
        system = bisect(popularity, random.random() * popularity[-1])
        yield _conversation(workload, random, number, system, lengths[system])


def _conversation(workload: Workload, random: Random, number: int, system: int, shared: int) -> Conversation:
    turns, tokens = [], shared
    for _ in range(1 + int(math.log(1 - random.random()) / math.log(1 - 1 / workload.turns))):
        tokens += _log_normal(random, workload.user_tokens, 1.0, 4, 2000)
        answer = _log_normal(random, workload.answer_tokens, 0.7, 4, 500)
        if tokens + answer > workload.context:
            break
        turns.append((tokens, answer, random.expovariate(1 / workload.pause)))
        tokens += answer
    made = Conversation(number, system, shared, turns)
    for block in range(tokens // TOKENS_PER_BLOCK):
        is_shared = (block + 1) * TOKENS_PER_BLOCK <= shared
        made.blocks.append(system << 20 | block if is_shared else _OWN | number << 20 | block)
    return made


def _log_normal(random: Random, median: float, sigma: float, least: int, most: int) -> int:
    return min(max(round(random.lognormvariate(math.log(median), sigma)), least), most)
