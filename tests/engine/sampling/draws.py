"""Draws of a sampler, as the runner asks for them."""

import numpy as np

from engine.sampling.candidates import Logits
from engine.sampling.sampler import SequenceSampler
from engine.sampling.truncation.draws import draw


def next_token(sampler: SequenceSampler, logits: Logits) -> int:
    """Return the next token of a sampler. Changes the logits."""
    best = sampler.prepare(logits, int(logits.argmax()))
    chosen = sampler.truncation
    token = draw(logits[np.newaxis], [best], [chosen])[0] if chosen else sampler.sample(logits, best)
    sampler.accept(token)
    return token
