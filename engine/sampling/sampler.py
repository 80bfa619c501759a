"""The sampler of one sequence: grammar and biases, penalties, then a draw."""

import math
import random
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from itertools import takewhile
from typing import NamedTuple, Self

import llama_cpp
import numpy as np

from engine.request import Sampling
from engine.sampling import penalties
from engine.sampling.candidates import DrawError, Ids, Logits
from engine.sampling.chain_sampling import ChainSampling
from engine.sampling.constraint import Constraint
from engine.sampling.penalties import Penalties
from engine.sampling.resources import SamplerResources
from engine.sampling.sampler_order import INFILL, active_samplers, is_greedy
from engine.sampling.truncation.draws import Truncation, truncation_of

_SEED_BITS = 32
_STAND_IN_SEED = 0x5EED5EED
"""Replaces the seed by which llama.cpp draws a random one. A seed in a request asks for repeatable results."""


class SequenceSampler:
    """Draws the tokens of one sequence. Owns its samplers in llama.cpp and frees them once."""

    truncation: Truncation | None
    """How a token is drawn from the prepared logits; None if `sample` does it."""

    def __init__(
        self,
        sampling: Sampling,
        seed: int | None,
        resources: SamplerResources,
        *,
        prompt: list[int],
        stop_tokens: Iterable[int] = (),
        constraint: Constraint | None = None,
        keeps: bool = False,
    ) -> None:
        """Make the samplers.

        Args:
            sampling: the request's parameters.
            seed: the seed of this sequence; None draws one.
            resources: shared by all sequences.
            prompt: the tokens before the first drawn one.
            stop_tokens: ids that end this sequence. `min_tokens` suppresses them like the model's end tokens.
            constraint: the grammar constraint.
            keeps: True to keep the candidates of the last draw for `kept`.

        Raises:
            IndexError: a biased id is outside the vocabulary.
            ValueError: there is no sampler of that name.
        """
        self._sampling = sampling
        self._constraint = constraint
        self._drawn = 0
        self._keeps = keeps
        self._kept: tuple[Ids, Logits] = _NONE.ids, np.empty(0, np.float32)
        suppressed, ends = resources.suppressed_tokens, resources.end_tokens
        self._never = _Hidden.of(suppressed | ends if sampling.ignore_eos else suppressed)
        self._not_at_first = _Hidden.of(suppressed.union(ends, stop_tokens)) if sampling.min_tokens else self._never
        self._bias_ids, self._biases = _biases(sampling, resources.candidates.vocabulary)
        active = active_samplers(sampling)
        leading = tuple(takewhile(penalties.NAMES.__contains__, active))
        self._penalties: Penalties | None = None
        self._candidates = resources.candidates
        with ExitStack() as owned:
            if leading:
                self._penalties = owned.enter_context(closing(Penalties(leading, sampling, prompt, resources)))
            following, number = active[len(leading) :], _seed(seed)
            self._greedy = is_greedy(sampling, following)
            self.truncation = None if keeps or self._greedy else truncation_of(sampling, following, number)
            self._chain: ChainSampling | None = None
            if not (self._greedy or self.truncation):
                self._chain = owned.enter_context(
                    closing(ChainSampling(sampling, following, number, prompt, resources))
                )
            self._owned = owned.pop_all()

    def prepare(self, logits: Logits, best: int) -> int:
        """Apply the grammar, biases and penalties to the logits. Return the best token that may come next.

        The draw comes next: by `truncation`, or by `sample`; then `accept`. Waits for the grammar's mask.

        Args:
            logits: one for each token of the vocabulary. They are changed in place.
            best: the first token with the highest logit, or with a logit that is not a number.

        Raises:
            DrawError: no token can be drawn.
        """
        return self._best(logits, self._adjust(logits, best))

    def prepare_best(self, ids: Ids, logits: Logits) -> int:
        """Prepare a draw from the tokens with the highest logits. Only if these are enough.

        Args:
            ids: their ids.
            logits: their logits. They are changed in place.

        Returns:
            The place of the best one that may come next.

        Raises:
            DrawError: no token can be drawn.
        """
        hidden = self._hidden()
        if hidden.tokens:
            logits[np.isin(ids, hidden.ids)] = -math.inf
        best = int(logits.argmax())
        if not math.isfinite(logits[best]):
            raise DrawError("the model gave no finite logits for what may be drawn")
        return best

    def sample(self, logits: Logits, best: int) -> int:
        """Return a token where there is no `truncation`.

        Raises:
            DrawError: no token can be drawn.
        """
        token = self._chain.sample(logits) if self._chain else best
        if logits[token] == -math.inf:  # `infill` ends the text, also where it must not end
            self._kept = _only(best)
            return best
        if self._keeps:
            self._kept = self._candidates.kept() if self._chain else _only(token)
        return token

    def accept(self, token: int) -> None:
        """Take a token as the next one of the text."""
        self._drawn += 1
        if self._chain:
            self._chain.accept(token)
        if self._penalties:
            self._penalties.accept(token)
        if self._constraint:
            self._constraint.accept(token)

    def allows(self, tokens: Sequence[int]) -> bool:
        """Return whether the next tokens may be these, whatever their logits. Waits for the grammar's mask.

        Raises:
            DrawError: the grammar cannot continue.
        """
        if not self._hidden().tokens.isdisjoint(tokens):
            return False
        return self._constraint is None or self._constraint.allows(tokens)

    def force(self, token: int) -> None:
        """Take a token that `allows` has allowed, as if it had been drawn."""
        self._kept = _only(token)
        self.accept(token)

    @property
    def takes_best_except(self) -> frozenset[int] | None:
        """Tokens besides which each draw is the best token, whatever was drawn before; None if it may be another."""
        adjusts = self._constraint or self._penalties or self._biases.size
        if adjusts or self._keeps or self._sampling.min_tokens or not self._greedy:
            return None
        return self._never.tokens

    def kept(self) -> Logits:
        """Return the logits that the samplers left in the last draw, minus infinity for tokens that they dropped."""
        logits = np.full(self._candidates.vocabulary, -math.inf, np.float32)
        ids, left = self._kept
        logits[ids] = left
        return logits

    def close(self) -> None:
        """Free the samplers. Repeatable."""
        self._owned.close()

    def _adjust(self, logits: Logits, best: int) -> int:
        """Apply the grammar, the biases and the penalties. Return the best token."""
        if not (self._constraint or self._penalties or self._biases.size):
            return best
        if self._constraint:
            np.copyto(logits, -math.inf, where=self._constraint.denied())
        if self._biases.size:
            logits[self._bias_ids] += self._biases
        if self._penalties:
            self._penalties.apply(logits)
        return int(logits.argmax())

    def _best(self, logits: Logits, best: int) -> int:
        """Suppress tokens that must not come, or not yet, unless the grammar allows no other. Return the best token."""
        hidden = self._hidden()
        if best in hidden.tokens or (hidden.tokens and not self._greedy):
            before = logits[hidden.ids] if self._constraint else None
            logits[hidden.ids] = -math.inf
            if best in hidden.tokens:
                best = int(logits.argmax())
            if before is not None and logits[best] == -math.inf:
                logits[hidden.ids] = before
                best = int(logits.argmax())
        if not math.isfinite(logits[best]):
            raise DrawError("the model gave no finite logits for what may be drawn")
        return best

    def _hidden(self) -> "_Hidden":
        if self._drawn < self._sampling.min_tokens:
            return self._not_at_first
        return self._never


def best_are_enough(sampling: Sampling, count: int, *, hidden: int) -> bool:
    """Return whether the tokens with the highest logits decide every draw: by greedy sampling, or after `top_k`.

    A grammar needs all logits, too.

    Args:
        sampling: the request's parameters.
        count: number of these tokens.
        hidden: number of tokens that may have to be suppressed.
    """
    try:
        active = active_samplers(sampling)
    except ValueError:  # which the draw reports
        return False
    if sampling.logit_bias or {INFILL, *penalties.NAMES}.intersection(active):  # which need the tokens' ids
        return False
    if is_greedy(sampling, active):
        return hidden < count
    return active[:1] == ("top_k",) and sampling.top_k + hidden <= count


class _Hidden(NamedTuple):
    """Tokens that must not come, or not yet."""

    tokens: frozenset[int]
    """Their ids."""
    ids: Ids
    """The same as an array."""

    @classmethod
    def of(cls, tokens: Iterable[int]) -> Self:
        """Return these tokens."""
        known = frozenset(tokens)
        return cls(known, _ids(known))


def _seed(seed: int | None) -> int:
    if seed is None:
        return random.SystemRandom().randrange(llama_cpp.LLAMA_DEFAULT_SEED)
    seed %= 1 << _SEED_BITS
    return _STAND_IN_SEED if seed == llama_cpp.LLAMA_DEFAULT_SEED else seed


def _biases(sampling: Sampling, vocabulary: int) -> tuple[Ids, Logits]:
    """Return distinct ids and the sum of the biases of each."""
    biases: dict[int, float] = {}
    for token, bias in sampling.logit_bias:
        if not 0 <= token < vocabulary:
            raise IndexError("logit_bias names a token outside the vocabulary")
        biases[token] = biases.get(token, 0.0) + bias
    return _ids(biases), np.array(list(biases.values()), np.float32)


def _ids(tokens: Iterable[int]) -> Ids:
    return np.array(list(tokens), np.int32)


def _only(token: int) -> tuple[Ids, Logits]:
    """Return the candidates of a draw in which only one token is possible."""
    return _ids([token]), np.zeros(1, np.float32)


_NONE = _Hidden.of(())
