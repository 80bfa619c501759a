"""Draft tokens change the time of a text, and only that."""

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from engine.core.drafts.drafter import NgramDrafter
from engine.core.drafts.speculation import LENGTHS, Speculator, expected_tokens
from engine.core.sequence import Sequence
from engine.core.step import SCORED_AT_ONCE, StepPlan, StepResult
from engine.events import Finished
from engine.request import Grammar, GrammarKind, Sampling
from engine.testing.fake_model import END, FakeModel
from engine.testing.fake_runner import FakeRunner, Script
from tests.engine.driver import Driver, request
from tests.repeat import first

ROUND = list(b"the same words come round and round. ")


def again_and_again(tokens: list[int]) -> int:
    """Return the next token of a periodic text."""
    return ROUND[len(tokens) % len(ROUND)]


def mostly(tokens: list[int]) -> int:
    """Return the next token of a text that repeats itself, with an occasional deviation."""
    return ord("!") if len(tokens) % 29 == 0 else again_and_again(tokens)


class Paced(FakeRunner):
    """A runner with a fixed time per pass for the weights, and one for each row."""

    def __init__(self, model: FakeModel, script: Script, *, weights: float, row: float) -> None:
        super().__init__(model, script=script)
        self._weights = weights
        self._row = row

    def run(self, plan: StepPlan) -> StepResult:
        result = super().run(plan)
        return StepResult(result.outcome, result.draws, self._weights + self._row * plan.tokens, result.scores)


def driver(
    script: Script = again_and_again, *, weights: float = 1.0, row: float = 0.01, slots: int = 4, can_trim: bool = True
) -> Driver:
    model = FakeModel(slots=slots, context=2048, can_trim=can_trim)
    return Driver(model, Paced(model, script, weights=weights, row=row))


def generate(speculative: bool | None, script: Script, **fields: Any) -> tuple[str, Finished, int]:
    made = driver(script)
    key = made.serve("begin", max_tokens=fields.pop("max_tokens", 200), speculative=speculative, **fields)
    return made.text(key), made.finished(key), len(made.plans)


@pytest.mark.parametrize("script", [again_and_again, mostly])
def test_a_speculative_text_is_the_plain_one_in_fewer_passes(script: Script) -> None:
    plain, end, passes = generate(False, script)
    assert (end.drafted, end.accepted) == (0, 0)
    for speculative in (True, None):
        text, faster, fewer = generate(speculative, script)
        assert text == plain
        assert faster.tokens == end.tokens
        assert 0 < faster.accepted <= faster.drafted
        assert fewer < passes / 2
        assert fewer == passes - faster.accepted


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": ("round and ro",)},
        {"stop": ("round. the",), "stream": True},
        {"max_tokens": 43},
        {"max_tokens": 1},
        {"stop_tokens": (ord("."),)},
        {"stop_tokens": (ord("."),), "sampling": Sampling(min_tokens=90)},
        {"logprobs": 2},
        {"token_ids": True, "stream": True},
        {"grammar": Grammar(GrammarKind.GBNF, "only this, only this, only this, only this")},
        {"n": 3},
    ],
    ids=str,
)
def test_a_speculative_text_ends_where_a_plain_one_does_with_the_same_details(fields: dict[str, Any]) -> None:
    told = {}
    for speculative in (True, False):
        made = driver(mostly)
        key = made.serve("begin", speculative=speculative, **{"max_tokens": 120, **fields})
        told[speculative] = [
            (made.text(key, choice), made.details(key, choice)) for choice in range(fields.get("n", 1))
        ]
    assert told[True] == told[False]


def test_draft_tokens_behind_the_end_of_a_text_count_as_rejected() -> None:
    fields = {"stop": ("round. the",), "sampling": Sampling(min_tokens=60)}
    _, end, passes = generate(False, again_and_again, **fields)
    _, faster, fewer = generate(True, again_and_again, **fields)
    assert faster.tokens == end.tokens
    assert fewer == passes - faster.accepted


def test_the_end_token_may_be_drafted() -> None:
    def ends(tokens: list[int]) -> int:
        return END if len(tokens) == 100 else again_and_again(tokens)

    plain, _, _ = generate(False, ends)
    text, end, _ = generate(True, ends)
    assert (text, end.tokens) == (plain, 100 - len("begin") + 1)


def test_a_prediction_is_a_source_of_drafts() -> None:
    answer = bytes(range(33, 123)).decode()
    _, end, passes = generate(True, lambda tokens: ord(answer[len(tokens) - 5]), prediction=answer, max_tokens=80)
    assert end.accepted > 60
    assert passes < 20


def test_drafts_are_computed_only_where_that_is_faster() -> None:
    cheap, dear = driver(), driver(weights=0.0, row=1.0)
    drafted = []
    for made in (cheap, dear):
        key = made.serve("begin", max_tokens=300)
        drafted.append(made.finished(key).drafted)
    assert drafted[0] > 200
    assert 0 < drafted[1] < 100, "each length is tried, found too slow, and tried again a hundred passes later"


def test_a_request_that_asks_for_speculation_gets_it_even_if_slower() -> None:
    made = driver(weights=0.0, row=1.0)
    key = made.serve("begin", max_tokens=300, speculative=True)
    assert made.finished(key).accepted > 100


def test_a_text_without_a_repetition_costs_no_draft() -> None:
    made = driver(len)
    key = made.serve("zyx", max_tokens=90)
    assert made.finished(key).drafted == 0


def test_rows_have_equally_long_drafts_and_share_a_weight_pass() -> None:
    made = driver(slots=4)
    for at in range(4):
        made.add(f"{at}", max_tokens=100)
    made.drain()
    lengths = [{len(chunk.draft) for chunk in plan.chunks} for plan in made.plans if plan.decode]
    assert all(len(one) == 1 for one in lengths)
    assert {0} < set().union(*lengths)
    assert max(plan.tokens for plan in made.plans if plan.decode) <= 4 + SCORED_AT_ONCE


def test_a_model_that_cannot_drop_cells_gets_no_drafts() -> None:
    made = driver(can_trim=False)
    key = made.serve("begin", max_tokens=100, speculative=True)
    assert made.finished(key).drafted == 0


def test_a_model_with_few_snapshots_gets_short_drafts() -> None:
    model = FakeModel(context=2048, can_trim=False, max_draft=3)
    made = Driver(model, Paced(model, mostly, weights=1.0, row=0.01))
    key = made.serve("begin", max_tokens=200, speculative=True)
    assert made.text(key) == generate(False, mostly)[0]
    assert made.finished(key).drafted > made.finished(key).accepted > 0
    assert max(len(chunk.draft) for plan in made.plans for chunk in plan.chunks) == 3


@pytest.mark.parametrize(
    "fields", [{}, {"stop": ("round. the",)}, {"cache_prompt": False}, {"max_tokens": 43}], ids=str
)
def test_a_rejected_draft_may_take_its_step_with_it(fields: dict[str, Any]) -> None:
    asked = {"max_tokens": 200, **fields}
    model = FakeModel(context=2048, can_trim=False, max_draft=LENGTHS[-1], drops_steps=True)
    made = Driver(model, Paced(model, mostly, weights=1.0, row=0.01))
    key = made.serve("begin", speculative=True, **asked)
    assert made.text(key) == generate(False, mostly, **asked)[0]
    assert made.finished(key).drafted > made.finished(key).accepted > 0
    follow_up = made.serve("begin" + made.text(key) + "more", max_tokens=5)
    assert len(made.text(follow_up)) == 5


def test_an_accepted_draft_does_not_take_its_step_with_it() -> None:
    model = FakeModel(context=2048, can_trim=False, max_draft=LENGTHS[-1], drops_steps=True)
    made = Driver(model, Paced(model, again_and_again, weights=1.0, row=0.01))
    made.serve("begin", max_tokens=200, speculative=True)
    chunks = [chunk for plan in made.plans for chunk in plan.chunks]
    ends = [(later.start, chunk) for chunk, later in pairwise(chunks) if chunk.draft]
    assert any(start == chunk.start + chunk.count + len(chunk.draft) for start, chunk in ends)


def test_only_a_sequence_that_runs_alone_has_drafts_that_take_their_step_with_them() -> None:
    model = FakeModel(context=2048, can_trim=False, max_draft=LENGTHS[-1], drops_steps=True)
    made = Driver(model, Paced(model, mostly, weights=1.0, row=0.01))
    keys = [made.add("begin", max_tokens=tokens, speculative=True) for tokens in (60, 200)]
    while made.scheduler.metrics().held != 1 or made.scheduler.metrics().waiting:
        made.step()
        assert made.scheduler.metrics().held == 1 or not made.scheduler.metrics().drafted
    made.drain()
    assert made.finished(keys[0]).drafted == 0
    assert made.finished(keys[1]).accepted > 0


@pytest.mark.parametrize("only_neighbours", [True, False])
def test_rows_apart_have_no_drafts_where_only_neighbours_may(only_neighbours: bool) -> None:
    speculator = Speculator(replace(FakeModel().traits, has_state=only_neighbours))
    rows = [Sequence(request("begin", speculative=True), 0, list(b"abcabcabcabc"), 100) for _ in range(2)]
    for apart in (1, 2):
        for at, row in enumerate(rows):
            row.seq_id, row.computed = at * apart, len(row.tokens) - 1
        assert any(speculator.draft(rows, len(rows))) == (apart == 1 or not only_neighbours)


def test_cells_of_rejected_draft_tokens_are_dropped_before_the_next_pass() -> None:
    made = driver(mostly)
    made.add("begin", max_tokens=200, speculative=True)
    while made.scheduler.busy:
        made.step()
        resident = sum(map(len, made.run.cache.cells.values()))
        metrics = made.scheduler.metrics()
        assert resident - metrics.active_tokens - metrics.cached_tokens <= LENGTHS[-1]
    assert made.scheduler.metrics().accepted < made.scheduler.metrics().drafted


def test_a_request_cancelled_in_a_pass_with_drafts_releases_everything() -> None:
    made = driver()
    key = made.add("begin", max_tokens=500, speculative=True)
    while made.scheduler.metrics().accepted == 0:
        made.step()
    made.step(during=lambda: made.cancel(key))
    made.step()
    assert made.run.cache.cells[0] == []
    assert made.scheduler.metrics().free == 4


def test_concurrent_speculative_texts_are_the_same_as_alone() -> None:
    rng = random.Random(5)
    made = driver(mostly, slots=3)
    asked: dict[int, tuple[str, int]] = {}
    for _ in range(40):
        fields: dict[str, Any] = {
            "max_tokens": rng.randint(1, 150),
            "speculative": rng.choice([True, False, None]),
            "cache_prompt": rng.random() < 0.7,
        }
        prompt = "".join(rng.choices("ab", k=rng.randint(1, 30)))
        asked[made.add(prompt, **fields)] = prompt, fields["max_tokens"]
        for _ in range(rng.randint(0, 60)):
            made.step()
    made.drain()
    assert made.scheduler.metrics().accepted > 100
    by_position = made.scheduler.metrics().accepted_by_position
    assert sum(by_position) == made.scheduler.metrics().accepted
    assert sorted(by_position, reverse=True) == list(by_position)
    for key, (prompt, limit) in asked.items():
        lone = driver(mostly, slots=1)
        same = lone.serve(prompt, max_tokens=limit, speculative=False)
        assert made.text(key) == lone.text(same)


def test_each_draft_length_is_tried_once() -> None:
    row = Sequence(request("p", speculative=None), 0, [1, 2, 3, 4, 1, 2, 3], 1000)
    assert row.drafter
    row.computed = len(row.tokens) - 1
    row.drafter.acceptance_rate = 0.9
    speculator = Speculator(FakeModel().traits)
    speculator.observe(1, 1.0, drawn=1, accepted=0)
    tried = []
    while draft := speculator.draft([row], 1)[0]:
        tried.append(len(draft))
        speculator.observe(1 + len(draft), 100.0, drawn=1 + len(draft), accepted=len(draft))
    assert sorted(tried) == list(LENGTHS)


@pytest.mark.parametrize(("rate", "drafted", "tokens"), [(0.0, 7, 1), (1.0, 7, 8), (0.5, 2, 1.75), (0.9, 0, 1)])
def test_expected_tokens_follow_from_the_acceptance_rate(rate: float, drafted: int, tokens: float) -> None:
    assert expected_tokens(rate, drafted) == tokens


def test_no_drafts_for_a_seed() -> None:
    made = driver()
    key = made.serve("begin", max_tokens=200, sampling=Sampling(seed=0))
    assert made.finished(key).drafted == 0, "a seed asks for what can be repeated exactly"


class AlwaysDrafting(NgramDrafter):
    """A drafter with a guess before each token, whose acceptance rate is measured as that of the real one."""

    def draft(self, tokens: list[int], most: int) -> list[int]:
        del tokens
        return [0] * most

    def learn(self, right: int) -> None:
        """Compare the draft with the drawn tokens, of which so many are right."""
        self._draft = [0] * (right + 1)
        self._compare([0] * right + [1])


def draw_from(speculator: Speculator, tokens: int, rate: float, noise: float) -> tuple[int, int]:
    """Draw tokens of one row where this share of guesses is right. Return the accepted and the rejected ones.

    A guess is made before each token. A step takes as long for 16 rows as for one, up to 20 times in noise.
    """
    chance = random.Random(tokens + round(100 * rate))
    row = Sequence(request("p", speculative=None), 0, [1, 2, 3, 4, 1, 2, 3], 10**6)
    row.computed = len(row.tokens) - 1
    row.drafter = drafter = AlwaysDrafting([])
    accepted = rejected = 0
    while tokens > 0:
        draft = speculator.draft([row], 1)[0]
        right = 0
        while right < LENGTHS[-1] and chance.random() < rate:
            right += 1
        drafter.learn(right)
        right = min(right, len(draft))
        seconds = chance.uniform(1, 20) if chance.random() < noise else 1.0
        speculator.observe(1 + len(draft), seconds, drawn=1 + right, accepted=right)
        accepted, rejected, tokens = accepted + right, rejected + len(draft) - right, tokens - 1 - right
    return accepted, rejected


@pytest.mark.parametrize("noise", first(1, [0.3, 0.0, 0.05, 0.6]))
@pytest.mark.parametrize(("rate", "most"), [(0.0, 0.0), (0.02, 0.1), (0.05, 0.15)])
def test_wrong_guesses_are_few_whatever_the_clock_says(rate: float, noise: float, most: float) -> None:
    """The credit bounds them: 64 at first, and then a share of the drawn tokens."""
    _, rejected = draw_from(Speculator(FakeModel().traits), 8_000, rate, noise)
    assert rejected <= 64 + most * 8_000


@pytest.mark.parametrize("noise", first(1, [0.3, 0.0, 0.05, 0.6]))
@pytest.mark.parametrize(("rate", "least"), [(0.8, 0.6), (0.95, 0.8)])
def test_right_guesses_are_computed_in_noise_too(rate: float, noise: float, least: float) -> None:
    accepted, _ = draw_from(Speculator(FakeModel().traits), 8_000, rate, noise)
    assert accepted > least * 8_000


def test_the_more_rows_have_no_draft_the_less_often_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(_drafter: NgramDrafter, tokens: list[int], _most: int) -> list[int]:
        looks.append(len(tokens))
        return []

    monkeypatch.setattr(NgramDrafter, "draft", look)
    rows = [Sequence(request(), 0, [1], 100) for _ in range(32)]
    counts = []
    for some in (rows[:1], rows[:8], rows):
        looks.clear()
        speculator = Speculator(FakeModel().traits)
        assert all(draft == () for _ in range(20) for draft in speculator.draft(some, len(some)))
        counts.append(len(looks) // len(some))
    assert counts == [20, 10, 4]
