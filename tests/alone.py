"""The reference answer of a model to one prompt with no other sequence in the context: greedy, token by token."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from engine.config import EngineConfig
from engine.core.kv.cell_changes import Removal
from engine.core.kv.prefix import common_prefix
from engine.core.step import Chunk, Outcome, StepPlan
from engine.llama.memory.parameters import BATCH_ROWS
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.request import Sampling
from engine.sampling.candidates import Logits
from tests.engine.driver import running
from tests.models import model_path

_GREEDY = Sampling(temperature=0.0, ignore_eos=True)
_FAR = 0.5
"""Logits. Rounding differs by less, and most second-best candidates are further away."""


@dataclass(frozen=True)
class Said:
    """An answer: its text, its number of generated tokens, and whether a stop string ended it."""

    text: str
    tokens: int
    stopped: bool


class Alone:
    """The real model in this process, in a context of its own with one slot.

    Tokens computed in other pieces, or beside other rows, give slightly other logits, and where two candidates are
    closer than that, either may be the best. `could_say` allows only this.
    """

    def __init__(self, model: LlamaModel, runner: LlamaRunner) -> None:
        self.model = model
        self._runner = runner
        self._resident: list[int] = []
        self._known: dict[tuple[int, ...], list[int]] = {}

    def tokens(self, prompt: str | list[int]) -> list[int]:
        return self.model.tokenize(prompt) if isinstance(prompt, str) else prompt

    def continuation(self, prompt: str | list[int], count: int) -> list[int]:
        """The tokens that follow a prompt; its own end is ignored."""
        tokens = self.tokens(prompt)
        known = self._known.setdefault(tuple(tokens), [])
        while len(known) < count:
            known.append(int(self.logits(tokens + known).argmax()))
        return known[:count]

    def says(self, prompt: str | list[int], max_tokens: int, stop: str = "") -> Said:
        """Return the answer to a prompt. It ends before `stop`, unless that is the empty string."""
        said = b""
        for count, token in enumerate(self.continuation(prompt, max_tokens), 1):
            said += self.model.piece(token)
            if stop and stop.encode() in said:
                return Said(said.decode().partition(stop)[0], count, stopped=True)
        return Said(said.decode(errors="ignore"), max_tokens, stopped=False)

    def could_say(self, prompt: str | list[int], said: str, max_tokens: int, stop: str = "") -> bool:
        """Return true if `text` is a possible answer to a prompt where rounding decides between candidates.

        `stop` is the string that ended the answer; empty if its length did.
        """
        wanted = (said + stop).encode()
        paths: list[tuple[list[int], bytes]] = [([], b"")]
        while paths:
            path, text = paths.pop()
            if len(path) == max_tokens or (stop and stop.encode() in text):
                if text[: len(wanted)] == wanted and (stop or text == wanted):
                    return True
                continue
            paths += [([*path, token], longer) for token, longer in self._next(prompt, path, text, wanted)]
        return False

    def logits(self, tokens: list[int], chunk: int = BATCH_ROWS) -> Logits:
        """Return the logits after these tokens, computed in pieces of `chunk`; reuses a resident prefix."""
        kept = common_prefix(self._resident, tokens, min(len(self._resident), len(tokens) - 1))
        self._runner.cache.remove(Removal(0, kept))
        self._resident = tokens
        sequence = running(0, tokens, 1, sampling=_GREEDY)
        sequence.computed = kept
        while sequence.pending:
            count = min(chunk, sequence.pending)
            piece = Chunk(sequence, count, sample=count == sequence.pending)
            assert self._runner.run(StepPlan((piece,), decode=False)).outcome is Outcome.DONE
            sequence.computed += count
        self._runner.close(sequence)
        logits: Logits = self._runner._context.logits(1)[0].copy()
        return logits

    def _next(self, prompt: str | list[int], path: list[int], text: bytes, wanted: bytes) -> list[tuple[int, bytes]]:
        """Return the tokens that may count as the best and lead to the wanted text, with the text up to their end."""
        tokens = self.tokens(prompt) + path
        logits = self.logits(tokens)
        best = int(logits.argmax())
        near = np.flatnonzero(logits >= logits[best] - _FAR).tolist()
        found = [(token, longer) for token in near if _agree(longer := text + self.model.piece(token), wanted)]
        if all(token == best for token, _ in found):
            return found
        rounding = self._rounding(tokens, near)
        return [(token, longer) for token, longer in found if logits[best] - logits[token] <= rounding]

    def _rounding(self, tokens: list[int], candidates: list[int]) -> float:
        """Return how far the distance of two candidates changes when the same tokens are computed in other pieces."""
        ways = []
        for chunk in (1, 16, 64, BATCH_ROWS):
            self._resident = []
            ways.append(self.logits(tokens, chunk)[candidates])
        return 2 * float(np.ptp(ways, axis=0).max())


def _agree(text: bytes, wanted: bytes) -> bool:
    """Return true if one text begins with the other."""
    return text.startswith(wanted) or wanted.startswith(text)


@contextmanager
def alone(context: int = 2048) -> Iterator[Alone]:
    """Open the test model."""
    config = EngineConfig(model=str(model_path()), slots=1, context=context, threads=1)
    with LlamaModel(config, lambda _share: None) as model, LlamaRunner(model, config) as runner:
        yield Alone(model, runner)
