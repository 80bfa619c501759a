"""Prompts of random letters."""

import numpy as np

from tests.random_model import SPECIAL, VOCABULARY


def prompt(seed: int, length: int) -> list[int]:
    """Return random letters. Prompts of different seeds begin differently."""
    return [int(token) for token in np.random.default_rng(seed).integers(SPECIAL, VOCABULARY, length)]
