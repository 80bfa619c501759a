"""The interface of a loaded model, as the intake and the schedulers use it.

Implemented by `engine.llama.model` and by the fake in `engine.testing.fake_runner`.
"""

from dataclasses import dataclass
from typing import Protocol

from engine.events import ModelInfo
from engine.request import Grammar, Sampling


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """The properties of a model that decide how its passes are made."""

    cells_per_weight_pass: int
    """Cells that move from one sequence to another in the time of one pass over the weights, about."""
    min_prefill_chunk: int
    """Tokens of a prompt pass below which a smaller one takes no less time, about."""
    can_trim: bool
    """Whether the last cells of a sequence can be dropped alone; not so for recurrent and sliding-window models."""


class Model(Protocol):
    """A model's vocabulary and limits. Every method may be called from any thread."""

    @property
    def info(self) -> ModelInfo:
        """What was loaded."""

    @property
    def traits(self) -> ModelTraits:
        """How its passes are best made."""

    def tokenize(self, text: str, *, special: bool = True, begin: bool = True) -> list[int]:
        """Token ids of a text. May take long.

        `special` recognises the names of control tokens; `begin` adds the model's own beginning, if it has one and the
        text does not bring it.
        """

    def infill(self, prefix: str, suffix: str) -> list[int]:
        """Token ids of the prompt that asks for the text between two others. May take long.

        Raises `RequestError` (param `suffix`) where the model has no tokens for it.
        """

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token stands for, perhaps part of a character; a control token's name if `special`, else none.

        Raises `ValueError` for an id the model does not have.
        """

    def compile(self, grammar: Grammar) -> object:
        """What a runner needs to keep a sequence to a grammar; immutable, for any number of sequences. May take long.

        Raises `RequestError` (param `grammar`) with the compiler's words where it cannot be.
        """

    def prepare(self, sampling: Sampling) -> None:
        """Make now what drawing by it takes long to make, so that no step waits for it. May take long."""
