"""The interface of a loaded model, as the intake and the schedulers use it.

Implemented by `engine.llama.model` and by the fake in `engine.testing.fake_model`.
"""

from dataclasses import dataclass
from typing import Protocol

from engine.core.budget import LARGEST
from engine.info import ModelInfo
from engine.prompt import PromptText
from engine.request import Grammar, Sampling

CELLS_PER_TOKEN = 64
"""Cells that a CPU copies in its memory in the time of computing one token."""
WORTH_COPYING = 8
"""Tokens. A copy for fewer saves little, and it delays other sequences too."""


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """Properties of a model that decide how its steps are planned."""

    cells_per_weight_pass: int
    """Approximate number of cells that move from one sequence to another in the time of one weight pass."""
    min_prefill_chunk: int
    """Approximate number of tokens below which a smaller prompt step takes no less time."""
    can_trim: bool
    """True if the last cells of a sequence can be dropped alone. If not, a sequence goes back only to a checkpoint."""
    max_draft: int
    """Maximum number of draft tokens of a row: so many last cells can be dropped right after the step that computed
    them, whatever `can_trim` says.
    """
    drops_steps: bool = False
    """True if these can be dropped only with all others of their step, whose tokens are then computed again. Only a
    sequence that runs alone may have draft tokens.
    """
    has_state: bool = False
    """True if sequences have a recurrent state. A step may move the states of others, so that only one with rows in
    neighbouring slots may have draft tokens.
    """
    windowed: bool = False
    """True if a copy of cells has only those that a sliding window still shows. Its last ones cannot be dropped alone,
    whatever `can_trim` says.
    """
    prefill_tile: int = 1
    """Number of tokens of a longer chunk that llama.cpp computes together: a part of a tile takes as long as all."""
    largest_step: int = LARGEST
    """Maximum number of tokens of a prompt step."""
    cells_per_token: float = CELLS_PER_TOKEN
    """Approximate number of cells that are copied in the time of computing one token of a prompt."""
    worth_copying: int = WORTH_COPYING
    """Number of tokens that a copy of cells must save to be made."""
    idle_rows: int = 0
    """Maximum number of tokens that fill the slots without a row between two rows of a decode step, so that both share
    a weight pass.
    """
    idle_cells: int = 0
    """Maximum number of cells in these slots, which the idle rows attend to."""
    pool: int | None = None
    """Number of cells that all slots share in a unified cache; None if each slot has cells of its own."""
    uses_all_cores: bool = False
    """True if every core of the host computes in a step of one row."""

    def bridges(self, rows: int, cells: int) -> bool:
        """Return whether so many idle rows in slots with so many cells take less time than a weight pass."""
        return rows <= self.idle_rows and cells <= self.idle_cells

    def copy_pays(self, cells: int, tokens: int) -> bool:
        """Return whether so many tokens are worth a copy of a source with so many cells."""
        return tokens >= max(self.worth_copying, int(cells / self.cells_per_token))

    @property
    def shares_cells(self) -> bool:
        """True if a copied prefix takes no cells.

        Not with a sliding window: a cell of two sequences is not free again when the window of both has left it.
        """
        return self.pool is not None and not self.windowed

    @property
    def needs_checkpoints(self) -> bool:
        """True if some cells are reused only up to checkpoints."""
        return not self.can_trim or self.windowed


class Model(Protocol):
    """A model's vocabulary and limits. Every method may be called from any thread."""

    info: ModelInfo
    """The description of the model."""
    traits: ModelTraits
    """The traits that decide how its steps are planned."""

    def tokenize(self, text: str, *, special: bool = True, begin: bool = True) -> list[int]:
        """Return the token ids of a text. May take long.

        Args:
            text: the text.
            special: whether the names of control tokens in it become these tokens.
            begin: whether the model's beginning-of-sequence token is added, if it has one, unless the text begins
                with its name.
        """

    def tokenize_parts(self, prompt: PromptText, *, begin: bool = True) -> list[int]:
        """Return the token ids of a text with plain parts. May take long.

        Args:
            prompt: the text. Names of control tokens become these tokens, except where it is plain.
            begin: as in `tokenize`.
        """

    def tokenize_pair(self, query: str, document: str) -> list[int]:
        """Return the token ids of a query and a document for a model that ranks. May take long.

        Names of control tokens in them are plain text.
        """

    def infill(self, prefix: str, suffix: str) -> list[int]:
        """Return the token ids of a fill-in-the-middle prompt. May take long.

        Raises:
            RequestError: the model has no tokens for it (param `suffix`).
        """

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return the bytes of a token, which may be a part of a character.

        A control token returns its name if `special`, else no bytes.

        Raises:
            ValueError: the id is out of range.
        """

    def compiled(self, grammar: Grammar) -> object | None:
        """Return a grammar if it is compiled already. Fast.

        Raises:
            RequestError: `compile` raised it for this grammar.
        """

    def compile(self, grammar: Grammar) -> object:
        """Return a compiled grammar for the runner: immutable, for any number of sequences. May take long.

        Raises:
            RequestError: the grammar cannot be compiled (param `grammar`); the message is the compiler's.
        """

    def prepare(self, sampling: Sampling) -> None:
        """Make slow samplers of a request in advance, so that no step waits for them. May take long.

        Raises:
            RequestError: the vocabulary lacks a character that a sampler needs (param `dry_sequence_breakers`).
        """
