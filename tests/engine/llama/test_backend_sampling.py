"""Backend sampling on llama.cpp's CPU backend: the same draws from the best tokens as from all, and what is copied."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.core.kv.cell_changes import Removal
from engine.core.reasoning_budget import ReasoningBudget
from engine.core.sequence import Sequence
from engine.core.step import Chunk, DrawFailure, Outcome, StepPlan, StepResult
from engine.core.token import Token
from engine.errors import EngineFault
from engine.hardware import Hardware
from engine.llama.backend_sampling import best_tokens
from engine.llama.backend_sampling.best_tokens import BestTokens
from engine.llama.backend_sampling.choice import choose_backend_sampling
from engine.llama.backend_sampling.samplers import BEST, TopKSamplers
from engine.llama.devices import Device, all_devices
from engine.llama.drawing import outputs_of_best
from engine.llama.hardware.placement import Placement
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.request import Grammar, GrammarKind, Reasoning, Sampling
from engine.sampling.sampler import best_are_enough
from tests.architectures.models import family_model
from tests.c_calls import Handles
from tests.engine.driver import running
from tests.models import model_path
from tests.repeat import thorough

SLOTS, PATIENCE = 4, 3
CONFIG = EngineConfig(model=str(model_path()), slots=SLOTS, context=256, threads=1, backend_sampling=True)


def greedy(**fields: Any) -> Sampling:
    return Sampling(temperature=0.0, **fields)


def top_k(count: int = 40, **fields: Any) -> Sampling:
    return Sampling(temperature=0.9, top_k=count, top_p=0.95, min_p=0.02, **fields)


GREEDY, TOP_K = greedy(), top_k()
ENOUGH = {
    "greedy": GREEDY,
    "greedy without an end": greedy(ignore_eos=True),
    "top_k": TOP_K,
    "all of the best": Sampling(temperature=2.0, top_k=BEST),
    "other samplers behind": Sampling(
        top_k=30, typical_p=0.9, xtc_probability=0.5, xtc_threshold=0.05, temperature=1.5, dynatemp_range=0.5
    ),
    "another order": Sampling(top_k=20, min_p=0.05, temperature=1.3, samplers=("top_k", "temperature", "min_p")),
    "no end yet": top_k(min_tokens=20),
    "no end": top_k(3, ignore_eos=True),
}
NEED_ALL = {
    "all tokens": Sampling(temperature=1.0),
    "top_p alone": Sampling(top_p=0.9),
    "min_p alone": Sampling(min_p=0.1),
    "too many": Sampling(temperature=1.0, top_k=BEST + 1),
    "too many without the end": Sampling(top_k=BEST, ignore_eos=True),
    "a bias": greedy(logit_bias=((5, 100.0),)),
    "a penalty": greedy(repeat_penalty=1.3),
    "a penalty behind": Sampling(top_k=20, presence_penalty=0.5, samplers=("top_k", "penalties", "temperature")),
    "another first": Sampling(top_k=20, top_n_sigma=1.0),
    "infill": Sampling(top_k=20, samplers=("top_k", "infill")),
}


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    with LlamaModel(CONFIG, lambda _share: None) as loaded:
        yield loaded


@contextmanager
def opened(model: LlamaModel, choice: bool | None) -> Iterator[LlamaRunner]:
    before, model.backend_sampling = model.backend_sampling, choice
    try:
        with LlamaRunner(model, CONFIG) as runner:
            yield runner
    finally:
        model.backend_sampling = before


@pytest.fixture(scope="module")
def runners(model: LlamaModel) -> Iterator[tuple[LlamaRunner, LlamaRunner]]:
    """Return a runner with backend sampling, and one without."""
    with ExitStack() as stack:
        yield stack.enter_context(opened(model, choice=True)), stack.enter_context(opened(model, choice=False))


@pytest.fixture(autouse=True)
def clean(runners: tuple[LlamaRunner, LlamaRunner], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_tokens, "PATIENCE", PATIENCE)
    for runner in runners:
        for seq_id in range(SLOTS):
            runner.cache.remove(Removal(seq_id, 0))
        runner.arm()
    attach(runners[0])


def attach(runner: LlamaRunner) -> None:
    assert runner._best
    runner._best.attach()


def given(runner: LlamaRunner) -> bool:
    return runner._best is not None and runner._best.given


def sequence(seq_id: int, sampling: Sampling = GREEDY, **fields: Any) -> Sequence:
    made = running(seq_id, [(at * 7 + seq_id) % 500 + 3 for at in range(9)], sampling=sampling, **fields)
    made.seed = 7 + seq_id
    return made


def step(runner: LlamaRunner, *sequences: Sequence, draft: tuple[int, ...] = ()) -> StepResult:
    """Compute what is pending, and advance the sequences by their first draws."""
    chunks = tuple(Chunk(one, one.pending, sample=True, draft=draft) for one in sequences)
    result = runner.run(StepPlan(chunks, decode=all(chunk.count == 1 for chunk in chunks)))
    assert result.outcome is Outcome.DONE
    for one, (first, *_) in zip(sequences, result.draws, strict=True):
        assert isinstance(first, Token), first
        one.computed += one.pending
        one.tokens.append(first.id)
    return result


def generate(runner: LlamaRunner, count: int, *sequences: Sequence) -> tuple[list[list[int]], int]:
    """Return the drawn tokens of each sequence, and the number of rows whose logits were copied."""
    copied = sum(step(runner, *sequences).whole_rows for _ in range(count))
    for one in sequences:
        runner.close(one)
    return [one.tokens[one.prompt :] for one in sequences], copied


@pytest.mark.parametrize("sampling", ENOUGH.values(), ids=ENOUGH)
def test_the_best_tokens_give_the_draws_of_all_logits(
    runners: tuple[LlamaRunner, LlamaRunner], sampling: Sampling
) -> None:
    ours, copied = generate(runners[0], 24, *(sequence(seq_id, sampling) for seq_id in range(SLOTS)))
    theirs, all_rows = generate(runners[1], 24, *(sequence(seq_id, sampling) for seq_id in range(SLOTS)))
    assert ours == theirs
    assert (copied, all_rows) == (0, 24 * SLOTS)


@pytest.mark.parametrize("sampling", NEED_ALL.values(), ids=NEED_ALL)
def test_what_needs_all_logits_gets_them(runners: tuple[LlamaRunner, LlamaRunner], sampling: Sampling) -> None:
    ours, copied = generate(runners[0], 4, sequence(0, sampling), sequence(1))
    theirs, _ = generate(runners[1], 4, sequence(0, sampling), sequence(1))
    assert ours == theirs
    assert copied == 4 * 2, "llama.cpp copies the logits of all rows or of none"


@pytest.mark.parametrize(
    "neighbour",
    [
        lambda model: sequence(2, grammar=model.compile(Grammar(GrammarKind.REGEX, "(yes|no)+"))),
        lambda _: sequence(2, logprobs=3),
        lambda _: sequence(2, TOP_K, logprobs=2, sampled_logprobs=True),
    ],
    ids=["grammar", "logprobs", "sampled logprobs"],
)
def test_a_neighbour_that_needs_all_logits_comes_and_goes(
    model: LlamaModel, runners: tuple[LlamaRunner, LlamaRunner], neighbour: Callable[[LlamaModel], Sequence]
) -> None:
    drawn = []
    for runner in runners:
        one, other, special = sequence(0), sequence(1, TOP_K), neighbour(model)
        copied = [step(runner, *rows).whole_rows for rows in [(one, other)] * 2 + [(one, other, special)] * 3]
        copied += [step(runner, one, other).whole_rows for _ in range(PATIENCE + 2)]
        drawn.append(([each.tokens for each in (one, other, special)], copied))
        for each in (one, other, special):
            runner.close(each)
    assert drawn[0][0] == drawn[1][0]
    assert drawn[0][1] == [0] * 2 + [3] * 3 + [2] * (PATIENCE - 1) + [0] * 3
    assert drawn[1][1] == [2] * 2 + [3] * 3 + [2] * (PATIENCE + 2)


@pytest.mark.parametrize(("top", "copied"), [(BEST - 3, 0), (BEST - 2, 6)])
def test_suppressed_tokens_among_the_best_are_not_drawn(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch, top: int, copied: int
) -> None:
    with opened(model, choice=False) as runner:
        ((usual,), _) = generate(runner, 6, sequence(0))
    monkeypatch.setattr(model, "suppressed_tokens", frozenset(usual[:3]))
    drawn = []
    for choice in (True, False):
        with opened(model, choice=choice) as runner:
            drawn.append(generate(runner, 6, sequence(0), sequence(1, top_k(top))))
    assert drawn[0][0] == drawn[1][0]
    assert (drawn[0][1], drawn[1][1]) == (2 * copied, 12)
    assert not {*drawn[0][0][0], *drawn[0][0][1]} & set(usual[:3])


def test_scores_of_a_prompt_need_all_logits(runners: tuple[LlamaRunner, LlamaRunner]) -> None:
    scores = []
    for runner in runners:
        scored = sequence(0, logprobs=2, echo=True)
        result = runner.run(StepPlan((Chunk(scored, 9, sample=True, score=True),), decode=False))
        scores.append(result.scores)
        assert result.whole_rows == 9
        runner.close(scored)
    assert scores[0] == scores[1]


def test_a_prompt_chunk_without_outputs_changes_nothing(runners: tuple[LlamaRunner, LlamaRunner]) -> None:
    runner, whole = runners[0], sequence(0, logprobs=1)
    result = runner.run(StepPlan((Chunk(whole, 4, sample=False),), decode=False))
    assert result.whole_rows == 0
    assert given(runner)


@pytest.mark.parametrize("sampling", [GREEDY, TOP_K], ids=["greedy", "top_k"])
def test_draft_tokens_are_compared_with_draws_from_the_best(
    runners: tuple[LlamaRunner, LlamaRunner], sampling: Sampling
) -> None:
    (expected,), _ = generate(runners[1], 8, sequence(0, sampling))
    runner, drafted = runners[0], sequence(0, sampling)
    runner.cache.remove(Removal(0, 0))
    step(runner, drafted)
    guess = (*expected[1:5], (expected[5] + 1) % 512, 5, 5)
    result = step(runner, drafted, sequence(1), draft=guess)
    assert [draw.id for draw in result.draws[0] if isinstance(draw, Token)] == expected[1:6]
    assert result.whole_rows == 0
    runner.close(drafted)


def test_a_draft_of_the_greatest_length_has_room(runners: tuple[LlamaRunner, LlamaRunner], model: LlamaModel) -> None:
    runner, drafted = runners[0], sequence(0)
    step(runner, drafted)
    result = step(runner, drafted, draft=(7,) * model.traits.max_draft)
    assert (result.outcome, result.whole_rows) == (Outcome.DONE, 0)


def test_an_aborted_step_is_repaired(runners: tuple[LlamaRunner, LlamaRunner]) -> None:
    (expected,), _ = generate(runners[1], 6, sequence(0, TOP_K))
    runner, one = runners[0], sequence(0, TOP_K)
    for _ in range(3):
        step(runner, one)
    runner.abort()
    plan = StepPlan((Chunk(one, 1, sample=True),), decode=True)
    assert runner.run(plan).outcome is Outcome.ABORTED
    runner.arm()
    assert generate(runner, 3, one)[0] == [expected]


def test_an_exhausted_reasoning_budget_forces_the_end(
    runners: tuple[LlamaRunner, LlamaRunner], model: LlamaModel
) -> None:
    drawn = []
    for runner in runners:
        limited, ending = sequence(0, TOP_K), model.tokenize("</think>", begin=False)
        limited.reasoning = ReasoningBudget(Reasoning(budget=4, opening="<", closing="</think>", opened=True), ending)
        ((tokens,), copied) = generate(runner, 12, limited)
        assert tokens[4 : 4 + len(ending)] == ending
        drawn.append((tokens, copied))
    assert drawn == [(drawn[1][0], 0), (drawn[0][0], 12)]


def test_equal_logits_give_the_lowest_id() -> None:
    logits = np.array([[1, 3, 0, 3], [2, 0, -1, 1], [1, math.nan, 5, 1]], np.float32)
    ids = np.array([[9, 7, 8, 5], [6, 2, 3, 4], [1, 2, 3, 4]], np.int32)
    assert outputs_of_best(ids, logits).best == [5, 6, -1]


def test_the_best_tokens_have_the_highest_logits(runners: tuple[LlamaRunner, LlamaRunner]) -> None:
    step(runners[0], sequence(0))
    best = runners[0]._best
    assert best
    ids, logits = best.read(1)
    assert np.isfinite(logits).all()
    step(runners[1], sequence(0))
    row = runners[1]._context.logits(1)[0]
    assert logits[0].tolist() == row[ids[0]].tolist()
    assert set(ids[0].tolist()) == set(np.argsort(-row)[:BEST].tolist())


def test_rows_without_finite_logits_fail_alone(
    runners: tuple[LlamaRunner, LlamaRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = BestTokens.read

    def broken(self: BestTokens, outputs: int) -> tuple[Any, Any]:
        ids, logits = (rows.copy() for rows in read(self, outputs))
        logits[0] = math.nan
        return ids, logits

    monkeypatch.setattr(BestTokens, "read", broken)
    chunks = tuple(Chunk(sequence(at), 9, sample=True) for at in range(2))
    (failed,), (drawn,) = runners[0].run(StepPlan(chunks, decode=False)).draws
    assert isinstance(failed, DrawFailure)
    assert "no finite logits" in failed.message
    assert isinstance(drawn, Token)


def test_a_step_without_candidates_is_a_fault(
    runners: tuple[LlamaRunner, LlamaRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_tokens, "_get_count", lambda *_: 0)
    with pytest.raises(EngineFault, match="no candidates"):
        step(runners[0], sequence(0))


@thorough
@pytest.mark.parametrize("family", ["jamba", "gemma-2", "qwen-3.5", "lfm-2", "mamba", "deepseek-2"])
def test_other_architectures_draw_the_same_from_prompts_of_unequal_length(family: str) -> None:
    own = replace(CONFIG, model=str(family_model(family)))
    drawn = []
    with LlamaModel(own, lambda _share: None) as other:
        for choice in (True, False):
            other.backend_sampling = choice
            with LlamaRunner(other, own) as runner:
                rows = [sequence(0), sequence(1, TOP_K), sequence(2)]
                for at, row in enumerate(rows):
                    del row.tokens[3 + at :]
                drawn.append((*generate(runner, 12, *rows),))
    assert drawn == [(drawn[1][0], 0), (drawn[0][0], 36)]


@pytest.mark.parametrize("faster", [True, False])
def test_without_a_choice_the_faster_way_is_taken(
    model: LlamaModel, faster: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    measured = []

    def seconds(self: BestTokens, _batch: Any) -> float:
        measured.append(self.given)
        return 1.0 if self.given is faster else 2.0

    monkeypatch.setattr(BestTokens, "_seconds", seconds)
    caplog.set_level(logging.INFO)
    with opened(model, choice=None) as runner:
        runner.probe()
        assert measured == [True, False]
        assert given(runner) is faster
        assert f"selected on the {'device' if faster else 'host'}" in caplog.text
        assert generate(runner, 3, sequence(0))[1] == (0 if faster else 3)


def test_the_measurement_leaves_empty_slots(model: LlamaModel) -> None:
    with opened(model, choice=None) as runner:
        runner.probe()
        assert all(runner._context.end_of(seq_id) == 0 for seq_id in range(SLOTS))
    with opened(model, choice=True) as runner:
        runner.probe()
        assert given(runner)


def test_each_sampler_is_freed_once(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    handles = Handles(monkeypatch)
    with opened(model, choice=True) as runner:
        runner.probe()
        for seq_id, logprobs in enumerate((None, 1)):
            generate(runner, 2, sequence(seq_id, TOP_K, logprobs=logprobs))
        assert not given(runner)
        generate(runner, PATIENCE + 1, sequence(2, TOP_K))
        assert given(runner)
    assert (handles.alive, handles.mistakes) == ({}, [])


def test_a_device_without_the_operations_leaves_the_draws_to_the_host(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(TopKSamplers, "supported", False)
    with opened(model, choice=True) as runner:
        runner.probe()
        assert "backend sampling is off" in caplog.text
        assert generate(runner, 3, sequence(0))[1] == 3


@pytest.mark.parametrize("sampling", ENOUGH.values(), ids=ENOUGH)
def test_enough(sampling: Sampling) -> None:
    assert best_are_enough(sampling, BEST, hidden=2 if sampling.ignore_eos else 0)


@pytest.mark.parametrize("sampling", NEED_ALL.values(), ids=NEED_ALL)
def test_not_enough(sampling: Sampling) -> None:
    assert not best_are_enough(sampling, BEST, hidden=2 if sampling.ignore_eos else 0)


def test_an_unknown_sampler_fails_only_its_own_draw(runners: tuple[LlamaRunner, LlamaRunner]) -> None:
    chunks = tuple(
        Chunk(sequence(at, Sampling(samplers=names)), 9, sample=True) for at, names in enumerate([("none",), None])
    )
    (failed,), (drawn,) = runners[0].run(StepPlan(chunks, decode=False)).draws
    assert isinstance(failed, DrawFailure)
    assert isinstance(drawn, Token)


@pytest.mark.parametrize(
    ("asked", "devices", "layers", "chosen"),
    [
        (None, 0, -1, False),
        (None, 1, -1, None),
        (None, 1, 5, None),
        (None, 1, 0, False),
        (True, 0, -1, True),
        (False, 1, -1, False),
    ],
)
def test_the_choice(asked: bool | None, devices: int, layers: int, chosen: bool | None) -> None:
    found: tuple[Device, ...] = tuple(all_devices()[:1]) * devices
    placement = Placement(layers, (), (), found)
    assert choose_backend_sampling(replace(CONFIG, backend_sampling=asked), placement) is chosen


def test_tensor_parallelism_has_none(caplog: pytest.LogCaptureFixture) -> None:
    split, placement = replace(CONFIG, hardware=Hardware(split_mode="tensor")), Placement(-1, (), (), ())
    assert choose_backend_sampling(replace(split, backend_sampling=None), placement) is False
    assert not caplog.text
    assert choose_backend_sampling(split, placement) is False
    assert "--backend-sampling has no effect" in caplog.text
