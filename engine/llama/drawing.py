"""Draws of tokens from the outputs of a step."""

import logging
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import NamedTuple, TypeAlias

import numpy as np

from engine.core.sequence import Sequence
from engine.core.step import Chunk, Draw, DrawFailure
from engine.core.token import Score, Token
from engine.events import Alternative
from engine.llama.cpu.row_threads import RowThreads
from engine.llama.model import LlamaModel
from engine.sampling.candidates import Candidates, DrawError, Ids, Logits
from engine.sampling.constraint import Constraint
from engine.sampling.grammar import CompiledGrammar
from engine.sampling.logprobs import LogProbs
from engine.sampling.resources import SamplerResources
from engine.sampling.sampler import SequenceSampler
from engine.sampling.truncation.draws import Truncation, draw

logger = logging.getLogger(__name__)

_MASK_THREADS = 4
_NO_TOKEN = -1


class Outputs(NamedTuple):
    """Outputs of some rows of a step."""

    logits: Logits
    """(rows, tokens): of all tokens, or of the best ones. Draws change them."""
    best: list[int]
    """The best token of each row; `_NO_TOKEN` where no logit of the best ones is finite."""
    ids: Ids | None
    """(rows, tokens): the tokens of the logits, ascending. None for all tokens."""

    def single(self) -> list["Outputs"]:
        """Return the outputs of each row."""
        ids = self.ids
        return [
            Outputs(self.logits[row : row + 1], [best], None if ids is None else ids[row : row + 1])
            for row, best in enumerate(self.best)
        ]

    def has_best(self, row: int) -> bool:
        """Return whether the best logit of a row is finite."""
        best = self.best[row]
        return math.isfinite(self.logits[row, best]) if self.ids is None else best >= 0

    def token(self, row: int, place: int) -> int:
        """Return the token of a logit of a row."""
        return place if self.ids is None else int(self.ids[row, place])


OutputsOf: TypeAlias = Callable[[slice], Outputs]
"""Returns the outputs of some rows of a step. Any thread may call it."""


def outputs_of_all(logits: Logits) -> Outputs:
    """Return the outputs of rows with the logits of all tokens."""
    return Outputs(logits, logits.argmax(axis=1).tolist(), None)


def outputs_of_best(ids: Ids, logits: Logits) -> Outputs:
    """Return the outputs of rows with the best tokens, in any order, and their logits.

    They are put in the order of the tokens, so that the same seed draws the same token as from a row of all logits.
    The best of equals is the first one, as among all tokens.
    """
    order = ids.argsort(axis=1)
    ids, logits = np.take_along_axis(ids, order, axis=1), np.take_along_axis(logits, order, axis=1)
    rows, places = np.arange(len(ids)), logits.argmax(axis=1)
    best = np.where(np.isfinite(logits[rows, places]), ids[rows, places], _NO_TOKEN)
    return Outputs(logits, best.tolist(), ids)


class Begun(NamedTuple):
    """A draw of one row that is made together with those of other rows."""

    row: int
    """The row."""
    sequence: Sequence
    """Its sequence."""
    sampler: SequenceSampler
    """Its sampler, which has prepared the row."""
    truncation: Truncation
    """How its token is drawn."""
    best: int
    """The place of the best token that may come next."""
    unchanged: Logits | None
    """The logits before the draw, if log-probabilities of them are asked for."""


class Drawer:
    """Owns the samplers of the sequences, and the threads that draw and mask for grammars, and frees them once."""

    def __init__(self, model: LlamaModel, threads: int = 1) -> None:
        """Start without samplers. `model` must outlive them. So many threads share out the rows of a step."""
        self._model = model
        self._rows = RowThreads(threads)
        self._shared = SamplerResources(
            Candidates(model.info.vocabulary),
            model.end_tokens,
            model.info.context,
            model.dry,
            model.suppressed_tokens,
            model.vocab,
        )
        self._tokens: tuple[dict[int, Token], dict[int, Token]] = {}, {}
        self._samplers: dict[Sequence, SequenceSampler] = {}
        self._best_except: dict[Sequence, frozenset[int]] = {}  # for those that need no sampler
        self._mask_workers = ThreadPoolExecutor(_MASK_THREADS, "masks")

    def close(self) -> None:
        """Free everything. No other method may be called afterwards."""
        for sequence in list(self._samplers):
            self.forget(sequence)
        self._mask_workers.shutdown()
        self._rows.close()

    def forget(self, sequence: Sequence) -> None:
        """Free the sampler of a sequence. Repeatable."""
        self._best_except.pop(sequence, None)
        if sampler := self._samplers.pop(sequence, None):
            sampler.close()

    def scores(self, chunk: Chunk, outputs: Iterator[Outputs]) -> tuple[Score, ...]:
        """Return the scores of `Chunk.scored` by the next outputs, of one row each."""
        count = chunk.sequence.request.logprobs or 0
        return tuple(
            self._score(LogProbs(output.logits[0]), token, count)
            for token, output in zip(chunk.scored, outputs, strict=False)
        )

    def outputs(self, outputs_of: OutputsOf, rows: int) -> list[Outputs]:
        """Return the outputs of so many rows, one by one."""
        return self._rows.map(lambda some: outputs_of(some).single(), rows)

    def draw_rows(self, sequences: list[Sequence], outputs_of: OutputsOf) -> list[Draw]:
        """Draw a token for each of these sequences from its row."""
        return self._rows.map(lambda rows: self.draw(sequences[rows], outputs_of(rows)), len(sequences))

    def draws(self, chunk: Chunk, outputs: list[Outputs]) -> tuple[Draw, ...]:
        """Return the token after the last known one, and further ones as long as draft tokens are accepted."""
        draws = []
        for output, drafted in zip(outputs, (*chunk.draft, None), strict=True):
            (drawn,) = self.draw([chunk.sequence], output)
            draws.append(drawn)
            if drafted is None or isinstance(drawn, DrawFailure) or drawn.ends or drawn.id != drafted:
                break
        return tuple(draws)

    def draw(self, sequences: list[Sequence], outputs: Outputs) -> list[Draw]:
        """Draw a token for each of these sequences from its row. A failure of one does not affect the others."""
        first = [self._begin(sequence, outputs, row) for row, sequence in enumerate(sequences)]
        tokens = _draw_together([one for one in first if isinstance(one, Begun)], outputs)
        return [self._end(one, next(tokens)) if isinstance(one, Begun) else one for one in first]

    def _begin(self, sequence: Sequence, outputs: Outputs, row: int) -> Draw | Begun:
        """Draw the token of a row, or prepare the row for a draw together with others."""
        best, ids, request = outputs.best[row], outputs.ids, sequence.request
        others = self._best_except.get(sequence)
        if others is not None and best not in others and outputs.has_best(row):
            return self._token(best, special=request.show_special)
        logits = outputs.logits[row]
        unchanged = logits.copy() if request.logprobs is not None and not request.sampled_logprobs else None
        try:
            sampler = self._samplers.get(sequence) or self._open_sampler(sequence)
            token = _forced(sequence, sampler)
            if forced := token is not None:
                sampler.force(token)
            else:
                place = sampler.prepare(logits, best) if ids is None else sampler.prepare_best(ids[row], logits)
                if sampler.truncation:
                    return Begun(row, sequence, sampler, sampler.truncation, place, unchanged)
                token = outputs.token(row, sampler.sample(logits, place))
                sampler.accept(token)
            return self._drawn(sequence, sampler, token, unchanged, forced=forced)
        except Exception as error:  # noqa: BLE001 - logged
            return _failure(request.id, error)

    def _end(self, begun: Begun, token: int | DrawFailure) -> Draw:
        """Take the drawn token of a row."""
        if isinstance(token, DrawFailure):
            return token
        try:
            begun.sampler.accept(token)
            return self._drawn(begun.sequence, begun.sampler, token, begun.unchanged)
        except Exception as error:  # noqa: BLE001 - logged
            return _failure(begun.sequence.request.id, error)

    def _drawn(
        self,
        sequence: Sequence,
        sampler: SequenceSampler,
        token: int,
        unchanged: Logits | None,
        *,
        forced: bool = False,
    ) -> Token:
        """Return a token that the sampler has taken, with its log-probabilities if they are asked for."""
        request = sequence.request
        if sequence.reasoning is not None:
            sequence.reasoning.accept(self._model.piece(token, special=True), forced=forced)
        drawn = self._token(token, special=request.show_special)
        if request.logprobs is None:
            return drawn
        shown = LogProbs(sampler.kept() if unchanged is None else unchanged)
        logprob, top = self._score(shown, token, request.logprobs)
        return drawn._replace(logprob=logprob, top=top)

    def _token(self, token: int, *, special: bool) -> Token:
        """Return a drawn token without details. It is made once."""
        made = self._tokens[special].get(token)
        if made is None:
            piece = self._model.piece(token, special=special)
            made = self._tokens[special][token] = Token(token, piece, token in self._shared.end_tokens)
        return made

    def _score(self, logprobs: LogProbs, token: int, count: int) -> Score:
        top = (Alternative(at, self._model.piece(at, special=True), logprob) for at, logprob in logprobs.top(count))
        return logprobs.of(token), tuple(top)

    def _open_sampler(self, sequence: Sequence) -> SequenceSampler:
        self._samplers[sequence] = sampler = SequenceSampler(
            sequence.request.sampling,
            sequence.seed,
            self._shared,
            prompt=sequence.tokens[: sequence.prompt],
            stop_tokens=sequence.stop_tokens,
            constraint=self._constraint(sequence.grammar),
            keeps=sequence.request.sampled_logprobs,
        )
        others = sampler.takes_best_except
        if others is not None and sequence.request.logprobs is None and sequence.reasoning is None:
            self._best_except[sequence] = others
        return sampler

    def _constraint(self, grammar: object | None) -> Constraint | None:
        """Return a new constraint by a compiled grammar.

        Raises:
            TypeError: the grammar was not compiled by this model.
        """
        if grammar is None:
            return None
        if not isinstance(grammar, CompiledGrammar):
            raise TypeError(f"{type(grammar).__name__} is no compiled grammar")
        return Constraint(grammar, self._mask_workers)


def _forced(sequence: Sequence, sampler: SequenceSampler) -> int | None:
    """Return the first token that ends the reasoning, if it must end now, and None otherwise.

    Raises:
        DrawError: the grammar cannot continue.
    """
    due = () if sequence.reasoning is None else sequence.reasoning.due
    return due[0] if due and sampler.allows(due) else None


def _draw_together(begun: list[Begun], outputs: Outputs) -> Iterator[int | DrawFailure]:
    """Yield a token for each of these rows. Neighbouring rows are drawn with the same calls of numpy."""
    for _, numbered in groupby(enumerate(begun), key=lambda one: one[1].row - one[0]):
        yield from _draw_neighbours([one for _, one in numbered], outputs)


def _draw_neighbours(begun: list[Begun], outputs: Outputs) -> list[int | DrawFailure]:
    rows = slice(begun[0].row, begun[-1].row + 1)
    try:
        places = draw(outputs.logits[rows], [one.best for one in begun], [one.truncation for one in begun])
    except Exception as error:  # noqa: BLE001 - logged
        if len(begun) == 1:
            return [_failure(begun[0].sequence.request.id, error)]
        return [token for one in begun for token in _draw_neighbours([one], outputs)]  # only those at fault fail
    return [outputs.token(one.row, place) for one, place in zip(begun, places, strict=True)]


def _failure(request_id: str, error: Exception) -> DrawFailure:
    """Return the failure of a draw. Logs it if it is unexpected."""
    if isinstance(error, DrawError):
        return DrawFailure(str(error), error.code, error.param)
    logger.error("a sampler failed", exc_info=error, extra={"request_id": request_id})
    return DrawFailure("the sampler failed")
