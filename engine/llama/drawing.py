"""Draws of tokens from the outputs of a step."""

import logging
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TypeAlias

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

logger = logging.getLogger(__name__)

Output: TypeAlias = tuple[Logits, int, Ids | None]
"""Logits of a row, its best token, and the tokens of the logits; None for all tokens."""
OutputsOf: TypeAlias = Callable[[slice], Iterator[Output]]
"""Returns the outputs of some rows of a step. Any thread may call it."""

_MASK_THREADS = 4
_NO_TOKEN = -1


def outputs_of_all(logits: Logits) -> Iterator[Output]:
    """Return the outputs of rows with the logits of all tokens."""
    return zip(logits, logits.argmax(axis=1).tolist(), repeat(None, len(logits)), strict=True)


def outputs_of_best(ids: Ids, logits: Logits) -> Iterator[Output]:
    """Return the outputs of rows with the best tokens, in any order, and their logits.

    The best of equals is the first one, as among all tokens. A row without finite logits has `_NO_TOKEN`.
    """
    highest = logits.max(axis=1, keepdims=True)
    best = np.where(logits == highest, ids, np.iinfo(ids.dtype).max).min(axis=1)
    best[~np.isfinite(highest[:, 0])] = _NO_TOKEN
    return zip(logits, best.tolist(), ids, strict=True)


class Drawer:
    """Owns the samplers of the sequences, and the threads that draw and mask for grammars, and frees them once."""

    def __init__(self, model: LlamaModel, threads: int = 1) -> None:
        """Start without samplers. `model` must outlive them. So many threads share out the rows of a step."""
        self._model = model
        self._rows = RowThreads(threads)
        self._shared = SamplerResources(
            Candidates(model.info.vocabulary), model.end_tokens, model.info.context, model.dry
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

    def scores(self, chunk: Chunk, outputs: Iterator[Output]) -> tuple[Score, ...]:
        """Return the scores of `Chunk.scored` by the next outputs."""
        count = chunk.sequence.request.logprobs or 0
        return tuple(
            self._score(LogProbs(logits), token, count)
            for token, (logits, _, _) in zip(chunk.scored, outputs, strict=False)
        )

    def outputs(self, outputs_of: OutputsOf, rows: int) -> list[Output]:
        """Return the outputs of so many rows."""
        return self._rows.map(lambda some: list(outputs_of(some)), rows)

    def draw_rows(self, sequences: list[Sequence], outputs_of: OutputsOf) -> list[Draw]:
        """Draw a token for each of these sequences from its row."""

        def draw(rows: slice) -> list[Draw]:
            return list(map(self.draw, sequences[rows], outputs_of(rows)))

        return self._rows.map(draw, len(sequences))

    def draws(self, chunk: Chunk, outputs: list[Output]) -> tuple[Draw, ...]:
        """Return the token after the last known one, and further ones as long as draft tokens are accepted."""
        draws = []
        for output, drafted in zip(outputs, (*chunk.draft, None), strict=True):
            drawn = self.draw(chunk.sequence, output)
            draws.append(drawn)
            if drafted is None or isinstance(drawn, DrawFailure) or drawn.ends or drawn.id != drafted:
                break
        return tuple(draws)

    def draw(self, sequence: Sequence, output: Output) -> Draw:
        """Draw a token for one sequence. Its failure does not affect the other sequences."""
        logits, best, ids = output
        others = self._best_except.get(sequence)
        if others is not None and best not in others and (math.isfinite(logits[best]) if ids is None else best >= 0):
            return self._token(best, special=sequence.request.show_special)
        request = sequence.request
        unchanged = logits.copy() if request.logprobs is not None and not request.sampled_logprobs else None
        try:
            sampler = self._samplers.get(sequence) or self._open_sampler(sequence)
            token = self._next(sequence, sampler, output)
        except DrawError as error:
            return DrawFailure(str(error), error.code, error.param)
        except Exception:
            logger.exception("a sampler failed", extra={"request_id": request.id})
            return DrawFailure("the sampler failed")
        drawn = self._token(token, special=request.show_special)
        if request.logprobs is None:
            return drawn
        shown = LogProbs(sampler.kept() if unchanged is None else unchanged)
        logprob, top = self._score(shown, token, request.logprobs)
        return drawn._replace(logprob=logprob, top=top)

    def _next(self, sequence: Sequence, sampler: SequenceSampler, output: Output) -> int:
        """Return the next token: the first that ends the reasoning, if it must end now, else a drawn one.

        Raises:
            DrawError: no token can be drawn.
        """
        logits, best, ids = output
        reasoning = sequence.reasoning
        due = () if reasoning is None else reasoning.due
        forced = bool(due) and sampler.allows(due)
        if forced:
            token = due[0]
            sampler.force(token)
        else:
            token = sampler.draw(logits, best) if ids is None else sampler.draw_from(ids, logits)
        if reasoning is not None:
            reasoning.accept(self._model.piece(token, special=True), forced=forced)
        return token

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
