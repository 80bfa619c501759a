"""Random choices from one of two disjoint sets: the training set, and the held-out set for the evaluation."""

import random
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeVar

from engine.embedded.training.corpus import names

HELD_OUT_SHARE = 0.1

Option = TypeVar("Option")


def is_held_out(key: str) -> bool:
    """Return True if `key` (a pair of numbers, a word, a wording) is in the held-out set. The result is stable."""
    return blake2b(key.encode(), digest_size=1).digest()[0] < 256 * HELD_OUT_SHARE


class Draw:
    """A seeded source of random choices: from the held-out set with `held_out`, else from the training set."""

    def __init__(self, seed: int, *, held_out: bool) -> None:
        self.random = random.Random(seed)  # noqa: S311  (text for training, not a secret)
        self.held_out = held_out

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self.random.random() < probability

    def number(self, first: int, last: int) -> int:
        """Return an integer from `first` to `last`, both included."""
        return self.random.randint(first, last)

    def any(self, options: Sequence[Option]) -> Option:
        """Return one of `options`, from either set."""
        return self.random.choice(options)

    def weighted(self, options: Mapping[Option, float]) -> Option:
        """Return one of the keys of `options`, from either set, with a probability in proportion to its weight."""
        return self.random.choices(list(options), list(options.values()))[0]

    def allows(self, key: str) -> bool:
        """Return True if `key` is in the set of this source."""
        return is_held_out(key) == self.held_out

    def of(self, *parts: Sequence[str]) -> str:
        """Return one option of each part, joined to a text in the set of this source. There must be such a text."""
        while True:
            joined = "".join(self.any(part) for part in parts)
            if self.allows(joined):
                return joined

    def sentence(self, *parts: Sequence[str]) -> str:
        """Return a text as `of` does, usually with a capital letter first."""
        sentence = self.of(*parts)
        return sentence[0].upper() + sentence[1:] if self.chance(0.65) else sentence

    def pair(self) -> tuple[int, int]:
        """Return two numbers below 100. A pair and its reverse are in the same set."""
        while True:
            a, b = self.number(0, 99), self.number(0, 99)
            if self.allows(f"{min(a, b)}+{max(a, b)}"):
                return a, b

    def word(self) -> str:
        """Return a common or an invented word; in rare cases a number or random characters."""
        return self._word({names.common: 0.46, names.invented: 0.37, names.number: 0.09, names.jumble: 0.08})

    def strange_word(self) -> str:
        """Return an invented word or random characters, which cannot be memorised."""
        return self._word({names.invented: 0.8, names.jumble: 0.2})

    def _word(self, sorts: Mapping[Callable[[random.Random], str], float]) -> str:
        make = self.weighted(sorts)
        while True:
            word = make(self.random)
            if self.allows(word):
                return word

    def place(self) -> str:
        """Return the name of a town: real or invented, of one or more words."""
        make = self.weighted({names.town: 0.45, names.invented_town: 0.55})
        while True:
            place = make(self.random)
            if self.allows(place):
                return place

    def phrase(self, longest: int) -> str:
        """Return one to `longest` words in the style of typed text."""
        chosen = [self.word() for _ in range(self.number(1, longest))]
        if self.chance(0.3):
            chosen[0] = chosen[0].capitalize()
        if self.chance(0.15):
            chosen = [word.capitalize() for word in chosen]
        if self.chance(0.15):
            chosen[: len(chosen) // 2] = [*chosen[: len(chosen) // 2 - 1], chosen[len(chosen) // 2 - 1] + ","]
        return " ".join(chosen) + (self.any(".!?") if self.chance(0.2) else "")
