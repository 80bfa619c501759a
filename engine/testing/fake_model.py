"""Fake model without llama.cpp: its vocabulary, and the probabilities of its tokens."""

import heapq
import math
import re

from engine.core.budget import LARGEST
from engine.core.drafts.speculation import LENGTHS
from engine.core.model import ModelTraits
from engine.core.token import Score
from engine.errors import RequestError
from engine.events import Alternative
from engine.info import ModelInfo
from engine.prompt import PromptText
from engine.request import AdapterSet, Grammar, Sampling

END, PREFIX, SUFFIX, MIDDLE = range(256, 260)
"""Control tokens: the end of a generation, and the fill-in-the-middle tokens. Smaller ids are bytes."""
NAMES = {END: b"<end>", PREFIX: b"<prefix>", SUFFIX: b"<suffix>", MIDDLE: b"<middle>"}
VOCABULARY = MIDDLE + 1
_NAME = re.compile(b"(" + b"|".join(NAMES.values()) + b")")


def letters(tokens: list[int]) -> int:
    """Return a lower-case letter that depends on all earlier tokens and on their order."""
    return ord("a") + digest(tokens) % 26


def adapted(token: int, adapters: AdapterSet) -> int:
    """Return the token that a set of LoRA adapters makes of a lower-case letter: another letter."""
    if not adapters or not ord("a") <= token <= ord("z"):
        return token
    return ord("a") + (token - ord("a") + sum(int((id_ + 1) * 10 * scale) for id_, scale in adapters)) % 26


def weights(tokens: list[int], likeliest: int) -> list[int]:
    """Return the unnormalised probability of every next token; depends on all earlier tokens."""
    factor = digest(tokens) + 1
    shares = [1 + factor * (token + 7) % 101 for token in range(VOCABULARY)]
    shares[likeliest] += 1000
    return shares


def score(shares: list[int], token: int, alternatives: int) -> Score:
    """Return the log-probability of a token, and the most probable alternatives; lower ids first among equals."""
    total = sum(shares)
    best = heapq.nlargest(alternatives, range(VOCABULARY), key=shares.__getitem__)
    top = tuple(Alternative(one, spell(one, special=True), math.log(shares[one] / total)) for one in best)
    return math.log(shares[token] / total), top


def spell(token: int, *, special: bool) -> bytes:
    """Return the bytes of a token; raises `ValueError` for an id out of range."""
    if not 0 <= token < VOCABULARY:
        raise ValueError(f"token id {token} is out of range")
    if token in NAMES:
        return NAMES[token] if special else b""
    return bytes([token])


def digest(tokens: list[int]) -> int:
    """Return a number that depends on all tokens and on their order."""
    state = 7
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return state


class FakeModel:
    """A model with a vocabulary of all bytes and a few control tokens."""

    def __init__(  # noqa: PLR0913 - what tests vary
        self,
        *,
        slots: int = 4,
        context: int = 512,
        can_trim: bool = True,
        max_draft: int | None = None,
        windowed: bool = False,
        drops_steps: bool = False,
        infills: bool = True,
        shifts: bool = False,
        cells_per_weight_pass: int = 64,
        min_prefill_chunk: int = 64,
        prefill_tile: int = 1,
        largest_step: int = LARGEST,
        adapters: int = 2,
        pool: int | None = None,
        ranks: bool = False,
    ) -> None:
        self.info = ModelInfo(
            description="fake",
            vocabulary=VOCABULARY,
            context=context,
            trained_context=context,
            slots=slots,
            cells=pool or slots * context,
            parameters=0,
            size=0,
            infills=infills,
            shifts=shifts,
            eos=NAMES[END].decode(),
            adapters=adapters,
            generates=not ranks,
            ranks=ranks,
        )
        if max_draft is None:
            max_draft = LENGTHS[-1] if can_trim else 0
        moves = 0 if pool else cells_per_weight_pass
        self.traits = ModelTraits(
            moves,
            min_prefill_chunk,
            can_trim,
            max_draft,
            drops_steps=drops_steps,
            windowed=windowed,
            prefill_tile=prefill_tile,
            largest_step=largest_step,
            pool=pool,
        )

    def tokenize(self, text: str, *, special: bool = True, begin: bool = True) -> list[int]:  # noqa: ARG002
        """Return one token per byte, and one per name of a control token if `special`. `begin` adds no tokens."""
        parts = _NAME.split(text.encode()) if special else [text.encode()]  # every other one is a name
        ids = {name: token for token, name in NAMES.items()}
        return [token for at, part in enumerate(parts) for token in ([ids[part]] if at % 2 else part)]

    def tokenize_parts(self, prompt: PromptText, *, begin: bool = True) -> list[int]:
        """Return the tokens of each part, as `tokenize` does."""
        runs = (self.tokenize(part, special=not plain, begin=begin) for part, plain in prompt.parts())
        return [token for run in runs for token in run]

    def tokenize_pair(self, query: str, document: str) -> list[int]:
        """Return both texts, with a control token between them."""
        return [*query.encode(), SUFFIX, *document.encode()]

    def infill(self, prefix: str, suffix: str) -> list[int]:
        """Return both texts, each after its control token, if the model was created with these tokens."""
        if not self.info.infills:
            raise RequestError("this model cannot fill in", param="suffix", code="unsupported")
        return [PREFIX, *prefix.encode(), SUFFIX, *suffix.encode(), MIDDLE]

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return the bytes of a token."""
        return spell(token, special=special)

    def compiled(self, grammar: Grammar) -> bytes | None:  # noqa: ARG002
        """Return None: no grammar is kept."""
        return None

    def compile(self, grammar: Grammar) -> bytes:
        """Return the only text that matches a grammar of any kind: its source, which must not be empty."""
        if not grammar.source:
            raise RequestError("the grammar is empty", param="grammar", code="invalid_grammar")
        return grammar.source.encode()

    def prepare(self, sampling: Sampling) -> None:
        """Accept all sampling parameters; there is no sampler to prepare."""
