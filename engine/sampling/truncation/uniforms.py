"""llama.cpp's random numbers."""

from typing import Final

import numpy as np

_AT_ONCE: Final = 32
"""Numbers. A call of numpy takes as long as 100 of them."""


class Uniforms:
    """Numbers from 0 up to 1: those that llama.cpp's `dist` sampler draws with the same seed.

    It takes 64 bits of std::mt19937 for each, by std::uniform_real_distribution.
    """

    def __init__(self, seed: int) -> None:
        """Start with a seed of 32 bits."""
        self._words = np.random.RandomState(seed)  # numpy's newer generators expand a seed in a way of their own
        self._ready: list[float] = []

    def next(self) -> float:
        """Return the next number."""
        if not self._ready:
            low, high = self._words.randint(1 << 32, size=(_AT_ONCE, 2), dtype=np.uint32).T.astype(np.float64)
            numbers = (low + high * 2.0**32) / 2.0**64
            self._ready = np.minimum(numbers, np.nextafter(1.0, 0.0))[::-1].tolist()
        return self._ready.pop()
