"""A sequence constrained by a grammar: the masks are computed by other threads, and their errors raised at the wait."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.llama.model import LlamaModel
from engine.request import Grammar, GrammarKind, Sampling
from engine.sampling import constraint as module
from engine.sampling.candidates import Candidates, DrawError
from engine.sampling.constraint import Constraint
from engine.sampling.dry import DryTemplates
from engine.sampling.resources import SamplerResources
from engine.sampling.sampler import SequenceSampler
from tests.engine.sampling.draws import next_token
from tests.models import model_path


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    config = EngineConfig(model=str(model_path()), slots=1, context=256, threads=1)
    with LlamaModel(config, lambda _share: None) as loaded:
        yield loaded


class ByHand(Executor):
    """A worker pool that runs its work on demand."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: work(*arguments)))
        return future

    def work(self) -> None:
        for future, work in self.waiting:
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 (as executors do)
                future.set_exception(error)
        self.waiting.clear()


def token(model: LlamaModel, text: bytes) -> int:
    return next(at for at in range(model.info.vocabulary) if model.piece(at) == text)


def constraint(model: LlamaModel, regex: str, workers: Executor) -> Constraint:
    return Constraint(model.compile(Grammar(GrammarKind.REGEX, regex)), workers)


def test_the_first_mask_needs_no_worker_and_later_ones_are_computed_by_one(model: LlamaModel) -> None:
    workers = ByHand()
    made = constraint(model, "ab", workers)
    assert not made.denied()[token(model, b"a")]
    assert not workers.waiting
    made.accept(token(model, b"a"))
    assert len(workers.waiting) == 1, "handed over, not done"
    workers.work()
    assert not made.denied()[token(model, b"b")]
    assert made.denied()[token(model, b"a")]


def test_a_mask_that_costs_too_much_fails_the_draw(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SECONDS", -1.0)
    workers = ByHand()
    made = constraint(model, "ab", workers)
    made.accept(token(model, b"a"))
    workers.work()
    for _ in range(2):
        with pytest.raises(DrawError, match="too long"):
            made.denied()


class Spelling:
    """Draws by prepared logits, and keeps the text."""

    def __init__(
        self,
        model: LlamaModel,
        regex: str,
        sampling: Sampling,
        *,
        stops: tuple[int, ...] = (),
        suppressed: frozenset[int] = frozenset(),
    ) -> None:
        self.model, self.workers = model, ByHand()
        dry = DryTemplates(model._tokenizer.vocab, 256)
        resources = SamplerResources(Candidates(model.info.vocabulary), model.end_tokens, 256, dry, suppressed)
        made = constraint(model, regex, self.workers)
        self.sampler = SequenceSampler(sampling, 1, resources, prompt=[], stop_tokens=stops, constraint=made)

    def draw(self, *likely: int) -> int:
        """Draw a token, from logits that prefer these tokens, the first most."""
        logits = np.zeros(self.model.info.vocabulary, np.float32)
        logits[list(likely)] = 100.0 - np.arange(len(likely))
        self.workers.work()
        return next_token(self.sampler, logits)


SHAPES = [
    {"temperature": 0.0},
    {},
    {"top_k": 3},
    {"top_p": 0.5},
    {"min_p": 0.1},
    {"typical_p": 0.5},
    {"mirostat": 1},
    {"mirostat": 2},
    {"xtc_probability": 1.0, "xtc_threshold": 0.01},
    {"samplers": ("temperature", "top_k"), "top_k": 400, "temperature": 5.0},
    {"repeat_penalty": 2.0, "logit_bias": ((5, 100.0),)},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_text_matches_the_grammar_whatever_the_model_prefers(model: LlamaModel, shape: dict[str, Any]) -> None:
    (end,) = model.end_tokens
    spelling = Spelling(model, "[ab]{20}", Sampling(**shape))
    text = b""
    while (drawn := spelling.draw(end, token(model, b"z"), 5)) != end:
        text += model.piece(drawn)
    spelling.sampler.close()
    assert len(text) == 20
    assert set(text) <= set(b"ab")


@pytest.mark.parametrize("fields", [{"ignore_eos": True}, {"min_tokens": 100}], ids=str)
def test_the_end_token_is_drawn_where_no_other_may_follow(model: LlamaModel, fields: dict[str, Any]) -> None:
    (end,) = model.end_tokens
    letter = token(model, b"a")
    spelling = Spelling(model, "a?a?", Sampling(temperature=0.0, **fields))
    assert [spelling.draw(end, letter) for _ in range(3)] == [letter, letter, end]


def test_stop_tokens_wait_for_min_tokens_unless_the_grammar_leaves_no_other(model: LlamaModel) -> None:
    stops = tuple(at for at in range(model.info.vocabulary) if model.piece(at) == b"a")
    other = token(model, b"b")
    spelling = Spelling(model, "[ab]a", Sampling(temperature=0.0, min_tokens=9), stops=stops)
    assert [spelling.draw(stops[0], other) for _ in range(2)] == [other, stops[0]]


def test_suppressed_tokens_are_drawn_only_where_the_grammar_leaves_no_other(model: LlamaModel) -> None:
    letters = [[at for at in range(model.info.vocabulary) if model.piece(at) == letter] for letter in (b"a", b"b")]
    likely, other = letters[0][0], letters[1][0]
    spelling = Spelling(model, "[ab]a", Sampling(temperature=0.0), suppressed=frozenset(letters[0]))
    assert [spelling.draw(likely, other) for _ in range(2)] == [other, likely]


def test_a_model_without_a_finite_logit_for_any_allowed_token_fails_the_draw(model: LlamaModel) -> None:
    spelling = Spelling(model, "ab", Sampling(temperature=0.0))
    logits = np.full(model.info.vocabulary, -np.inf, np.float32)
    logits[token(model, b"z")] = 1.0
    with pytest.raises(DrawError, match="no finite logits"):
        next_token(spelling.sampler, logits)
