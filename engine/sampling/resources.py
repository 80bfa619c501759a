"""Resources that the samplers of all sequences share."""

from dataclasses import dataclass

from engine.sampling.candidates import Candidates
from engine.sampling.dry import DryTemplates


@dataclass(frozen=True, slots=True)
class SamplerResources:
    """Resources of one model and its runner."""

    candidates: Candidates
    """The candidate array of each thread, as working memory."""
    end_tokens: frozenset[int]
    """The ids that end a generation."""
    context: int
    """Tokens of a slot."""
    dry: DryTemplates
    """Maker of the DRY samplers."""
    suppressed_tokens: frozenset[int] = frozenset()
    """The ids that are never drawn, unless a grammar allows no other."""
    vocab: int = 0
    """The C vocabulary, for the sampler `infill`; 0 leaves this one out."""
