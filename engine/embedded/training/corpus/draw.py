"""Random choices from one of two sides that never meet: what the model trains on, and what is held out to judge it."""

import random
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeVar

from engine.embedded.training.corpus import names

HELD_OUT_SHARE = 0.1

Option = TypeVar("Option")


def is_held_out(key: str) -> bool:
    """Whether the thing named by `key` (a pair of numbers, a word, a wording) is kept from training. Never changes."""
    return blake2b(key.encode(), digest_size=1).digest()[0] < 256 * HELD_OUT_SHARE


class Draw:
    """A seeded source of choices. With `held_out` it gives only what training never sees, otherwise only the rest."""

    def __init__(self, seed: int, *, held_out: bool) -> None:
        self.random = random.Random(seed)  # noqa: S311  (text for training, not a secret)
        self.held_out = held_out

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self.random.random() < probability

    def number(self, first: int, last: int) -> int:
        """A whole number from `first` to `last`, both included."""
        return self.random.randint(first, last)

    def any(self, options: Sequence[Option]) -> Option:
        """One of `options`, from either side."""
        return self.random.choice(options)

    def weighted(self, options: Mapping[Option, float]) -> Option:
        """One of the keys of `options`, from either side, as often as its weight says."""
        return self.random.choices(list(options), list(options.values()))[0]

    def allows(self, key: str) -> bool:
        """Whether `key` lies on this side."""
        return is_held_out(key) == self.held_out

    def of(self, *parts: Sequence[str]) -> str:
        """One option of each part, joined to a text that lies on this side. There must be one."""
        while True:
            joined = "".join(self.any(part) for part in parts)
            if self.allows(joined):
                return joined

    def sentence(self, *parts: Sequence[str]) -> str:
        """Like `of`, and usually with a capital letter first."""
        sentence = self.of(*parts)
        return sentence[0].upper() + sentence[1:] if self.chance(0.65) else sentence

    def pair(self) -> tuple[int, int]:
        """Two numbers below 100. A pair and its mirror image lie on the same side."""
        while True:
            a, b = self.number(0, 99), self.number(0, 99)
            if self.allows(f"{min(a, b)}+{max(a, b)}"):
                return a, b

    def word(self) -> str:
        """A common word or an invented one; now and then a number or a jumble of characters."""
        return self._word({names.common: 0.46, names.invented: 0.37, names.number: 0.09, names.jumble: 0.08})

    def strange_word(self) -> str:
        """An invented word or a jumble of characters: nothing that could be known by heart."""
        return self._word({names.invented: 0.8, names.jumble: 0.2})

    def _word(self, sorts: Mapping[Callable[[random.Random], str], float]) -> str:
        make = self.weighted(sorts)
        while True:
            word = make(self.random)
            if self.allows(word):
                return word

    def place(self) -> str:
        """A town's name: real or invented, of one or more words."""
        make = self.weighted({names.town: 0.45, names.invented_town: 0.55})
        while True:
            place = make(self.random)
            if self.allows(place):
                return place

    def phrase(self, longest: int) -> str:
        """One to `longest` words, as somebody might type them."""
        chosen = [self.word() for _ in range(self.number(1, longest))]
        if self.chance(0.3):
            chosen[0] = chosen[0].capitalize()
        if self.chance(0.15):
            chosen = [word.capitalize() for word in chosen]
        if self.chance(0.15):
            chosen[: len(chosen) // 2] = [*chosen[: len(chosen) // 2 - 1], chosen[len(chosen) // 2 - 1] + ","]
        return " ".join(chosen) + (self.any(".!?") if self.chance(0.2) else "")
