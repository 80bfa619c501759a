"""What the samplers of all sequences share."""

from dataclasses import dataclass

from engine.sampling.candidates import Candidates
from engine.sampling.dry import DryTemplates


@dataclass(frozen=True, slots=True)
class SamplerResources:
    """Of one model and its runner.

    Attributes:
        candidates: the working array.
        end_tokens: the ids that end a generation.
        context: tokens a sequence can have.
        dry: makes the samplers of DRY.
    """

    candidates: Candidates
    end_tokens: frozenset[int]
    context: int
    dry: DryTemplates
