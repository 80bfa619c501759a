"""Draws of a sampler, as the runner asks for them."""

from engine.sampling.candidates import Logits
from engine.sampling.sampler import SequenceSampler


def next_token(sampler: SequenceSampler, logits: Logits) -> int:
    """Return the next token of a sampler. Changes the logits."""
    return sampler.draw(logits, int(logits.argmax()))
