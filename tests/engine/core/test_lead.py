"""Steps that start before the result of the last one is applied."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.core.planner import Planner
from engine.core.sequence import Sequence
from engine.core.step import DrawFailure, Outcome, StepPlan, StepResult
from engine.events import Finished, FinishReason, Released, Text
from engine.request import Sampling
from engine.testing.fake_model import END, FakeModel, letters
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver

LONG = 100


def decoding(*prompts: str, driver: Driver | None = None, **fields: Any) -> Driver:
    """Start requests, and step until the next step is known before the result of the last one is applied."""
    driver = driver or Driver(ahead=True)
    for prompt in prompts:
        driver.add(prompt, **{"max_tokens": LONG, "stream": True, **fields})
    while driver.following is None:
        driver.step()
    return driver


def rows(plan: StepPlan) -> list[tuple[int, int, bool]]:
    return [(chunk.seq_id, chunk.start, chunk.sample) for chunk in plan.chunks]


def test_the_next_step_has_the_same_rows_one_token_further() -> None:
    driver = decoding("one", "two")
    before, following = driver.plans[-1], driver.following
    assert following is not None
    assert rows(following) == [(seq_id, start + 1, sample) for seq_id, start, sample in rows(before)]


def test_the_news_of_a_step_come_while_the_next_one_runs() -> None:
    driver = decoding("one")
    seen: list[int] = []

    def texts() -> int:
        return sum(isinstance(event, Text) for event in driver.news[1])

    before = texts()
    driver.step(lambda: seen.append(texts()))
    assert (seen, texts()) == ([before], before + 1)


def test_texts_are_those_of_steps_one_after_another() -> None:
    texts = []
    for ahead in (False, True):
        driver = Driver(ahead=ahead)
        for prompt in ("one", "two", "three"):
            driver.add(prompt, max_tokens=20, stop=("q",), stream=True)
        driver.drain()
        texts.append([driver.text(key) for key in (1, 2, 3)])
    alone, ahead_of = texts
    assert alone == ahead_of


@pytest.mark.parametrize("prompt", ["x", "the same prompt"])
def test_the_last_token_of_a_prompt_is_counted_also_in_a_decode_step(prompt: str) -> None:
    news = []
    for ahead in (False, True):
        driver = Driver(ahead=ahead)
        driver.serve("the same prompt", max_tokens=1)
        driver.add("one", max_tokens=20)
        driver.step()
        driver.serve(prompt, max_tokens=10, stream=True, progress=True)
        assert driver.scheduler.metrics().computed_prompt_tokens == len("the same prompt") + len("one") + 1
        news.append(driver.news)
    alone, ahead_of = news
    assert alone == ahead_of


def test_a_row_that_draws_no_token_ends_beside_others() -> None:
    driver = decoding("one")
    key = driver.add("x", max_tokens=0)
    driver.step()
    driver.step()
    assert [chunk.sample for chunk in driver.plans[-1].chunks] == [True, False]
    assert isinstance(driver.last(key), Finished)
    driver.drain()
    assert len(driver.text(1)) == LONG


def test_a_full_slot_discards_tokens_between_steps() -> None:
    texts = []
    for ahead in (False, True):
        driver = Driver(FakeModel(slots=2, context=32, shifts=True), ahead=ahead)
        for prompt in ("the quick brown fox", "jumps"):
            driver.add(prompt, max_tokens=LONG)
        driver.drain()
        texts.append([driver.text(key) for key in (1, 2)])
    alone, ahead_of = texts
    assert alone == ahead_of
    assert list(map(len, alone)) == [LONG, LONG]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("size", range(2, 16))
def test_a_slot_that_a_stop_string_fills_discards_nothing(size: int, ahead: bool) -> None:
    model = FakeModel(slots=1, context=32, shifts=True)
    full = Driver(model)
    full.serve("a" * (32 - size), max_tokens=size)
    driver = Driver(model, ahead=ahead)
    driver.serve("a" * (32 - size), max_tokens=LONG, stop=(full.text(1)[-2:],))
    end = driver.finished(1)
    assert (end.reason, end.discarded) == (FinishReason.STOP, 0)


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_no_row_is_computed_behind_a_limit(limit: int) -> None:
    computed = []
    for ahead in (False, True):
        driver = Driver(ahead=ahead)
        driver.serve("one", max_tokens=limit)
        computed.append(sum(plan.tokens for plan in driver.plans))
    assert computed[0] == computed[1]


@pytest.mark.parametrize("ends_by", [END, ord("!")])
@pytest.mark.parametrize("tokens", [2, 3, 7])
def test_no_row_is_computed_behind_a_token_that_ends_a_sequence(tokens: int, ends_by: int) -> None:
    model = FakeModel()
    runner = FakeRunner(model, script=lambda cells: ends_by if len(cells) == len("one") + tokens else letters(cells))
    driver = Driver(model, runner, ahead=True)
    driver.serve("one", max_tokens=LONG, stop_tokens=(ord("!"),))
    end = driver.finished(1)
    assert (end.reason, end.tokens) == (FinishReason.STOP, tokens + 1)
    assert sum(plan.tokens for plan in driver.plans) == len("one") + tokens


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda driver: driver.add("new"), id="a request comes"),
        pytest.param(lambda driver: driver.cancel(1), id="a request is cancelled"),
    ],
)
def test_a_change_is_seen_before_the_step_after_the_running_one(happens: Callable[[Driver], None]) -> None:
    driver = decoding("one", "two", driver=Driver(FakeModel(slots=3), ahead=True))
    driver.step(lambda: happens(driver))
    assert driver.following is None


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda driver: driver.add("new"), id="a request comes"),
        pytest.param(lambda driver: driver.cancel(1), id="a request is cancelled"),
        pytest.param(lambda driver: driver.ledger.erase(driver.ledger.slots[2]), id="cells change"),
    ],
)
def test_a_change_after_the_next_step_is_prepared_is_seen(happens: Callable[[Driver], object]) -> None:
    driver = decoding("one", "two", driver=Driver(FakeModel(slots=3), ahead=True))

    def prepare_and_change() -> None:
        driver.apply()
        happens(driver)

    driver.step()
    driver.step(prepare_and_change)
    assert driver.following is None
    driver.drain()


def test_a_waiting_request_that_is_cancelled_is_released_before_the_step_after_the_running_one() -> None:
    driver = Driver(FakeModel(slots=1), ahead=True)
    key = driver.add("one", n=2, max_tokens=1, client="a")
    decoding("two", driver=driver, client="b")
    assert driver.has_finished(key), "its second choice waits"

    def prepare_and_cancel() -> None:
        driver.apply()
        driver.cancel(key)

    driver.step()
    driver.step(prepare_and_cancel)
    driver.step()
    assert driver.released(key).phase == "queued"


@pytest.mark.parametrize("ahead", [False, True])
def test_a_step_that_may_not_come_evicts_no_prefix(ahead: bool) -> None:
    driver = Driver(FakeModel(slots=2, context=256, pool=256), ahead=ahead)
    driver.serve("a" * 100, max_tokens=1)
    driver.serve("b" * 100, max_tokens=57)  # the cells of both fill the cache: the last token needs none
    key = driver.serve("a" * 100, max_tokens=1)
    assert driver.finished(key).cached == 99


def test_neighbouring_rows_are_planned_while_the_step_before_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = decoding("one", "two", speculative=False)
    late: list[int] = []
    plan = Planner.decode_step

    def count(planner: Planner, rows: list[Sequence], *, running: int) -> StepPlan:
        late.append(len(rows))
        return plan(planner, rows, running=running)

    monkeypatch.setattr(Planner, "decode_step", count)
    computed = len(driver.plans)
    while not driver.has_finished(1):
        driver.step()
    assert len(driver.plans) - computed > LONG // 2
    assert len(late) <= 2, "the first step, and the one after a sequence has ended"


def test_rows_with_a_gap_go_on_at_once() -> None:
    driver = Driver(FakeModel(slots=3), ahead=True)
    for prompt, slot in (("one", 0), ("two", 2)):
        driver.add(prompt, slot=slot, max_tokens=LONG, stream=True)
    while driver.following is None:
        driver.step()
    assert [seq_id for seq_id, _, _ in rows(driver.following)] == [0, 2]
    driver.step()
    assert driver.following is not None


def test_a_prompt_has_its_turns_beside_rows_whose_next_step_is_known() -> None:
    driver = decoding("one", driver=Driver(FakeModel(context=4096), ahead=True))
    driver.add("b" * 1000, max_tokens=5)
    begun = len(driver.plans)
    for _ in range(8):
        driver.step()
    assert [plan.decode for plan in driver.plans[begun:]] == [True, False] * 4


def test_the_release_of_a_preempted_request_does_not_wait_for_the_others() -> None:
    model = FakeModel(slots=3, context=256, pool=256)
    driver = Driver(model, FakeRunner(model), ahead=True)
    keys = [driver.add(letter * 60, max_tokens=LONG) for letter in "xyz"]
    while not driver.scheduler.metrics().preempted or driver.following is None:
        driver.step()
    assert driver.scheduler.metrics().waiting == 1
    driver.cancel(keys[-1])
    driver.step()
    driver.step()
    assert isinstance(driver.last(keys[-1]), Released)
    assert not any(isinstance(driver.last(key), Finished) for key in keys[:-1])


def test_requests_that_find_no_slot_do_not_delay_the_next_step() -> None:
    driver = decoding("one", "two", driver=Driver(FakeModel(slots=2), ahead=True))
    driver.add("waits")
    driver.step()
    assert driver.following is not None


def test_choices_that_wait_for_others_of_their_client_do_not_delay_the_next_step() -> None:
    driver = decoding("one", driver=Driver(FakeModel(slots=2), ahead=True), n=3)
    driver.step()
    assert driver.scheduler.metrics().waiting == 1
    assert driver.following is not None


def test_a_waiting_request_gets_the_slot_of_one_with_several() -> None:
    driver = decoding("one", driver=Driver(FakeModel(slots=2), ahead=True), n=2, client="greedy")
    driver.add("waits", client="other")
    driver.step()
    assert driver.following is None
    driver.step()
    assert {chunk.sequence.request.client for chunk in driver.plans[-1].chunks} == {"other"}


def test_a_failed_draw_is_no_token() -> None:
    driver = decoding("one")
    plan = driver.plans[-1]
    driver.apply()
    assert driver.following is not None
    result = driver.run.run(driver.following)
    failed = StepResult(Outcome.DONE, ((DrawFailure("no token"),),), result.seconds)
    tokens = len(plan.chunks[0].sequence.tokens)
    assert driver.scheduler.follow_up(driver.following, failed) is None
    driver.scheduler.apply(driver.following, failed)
    assert len(plan.chunks[0].sequence.tokens) == tokens
    assert 1 not in driver.scheduler


def test_a_stop_string_ends_a_request_while_a_row_is_computed_in_vain() -> None:
    driver = decoding("ab", stop=("z",))
    driver.finish(1)
    end = driver.finished(1)
    assert (end.reason, driver.text(1)) == (FinishReason.STOP, "kcjs")
    driver.drain()
    [slot] = [slot for slot in driver.ledger.slots if slot.cached]
    assert driver.run.cache.cells[slot.seq_id] == slot.cached == list(b"abkcjs")


def test_the_row_in_vain_ends_no_neighbour() -> None:
    driver = Driver(ahead=True)
    stopped = driver.add("ab", max_tokens=LONG, stop=("z",), stream=True)
    other = driver.serve("mn", max_tokens=12, stream=True)
    assert driver.text(stopped) == "kcjs"
    assert len(driver.text(other)) == driver.finished(other).tokens == 12


@pytest.mark.parametrize(("stop", "text"), [("z", "kcjs"), ("s", "kcj")])
def test_a_model_that_cannot_drop_a_cell_computes_no_row_in_vain(stop: str, text: str) -> None:
    driver = Driver(FakeModel(can_trim=False, max_draft=0), ahead=True)
    driver.serve("ab", max_tokens=LONG, stop=(stop,), stream=True)
    assert driver.text(1) == text
    assert [plan.tokens for plan in driver.plans] == [2, *[1] * len(text)]


@pytest.mark.parametrize(
    ("fields", "known"), [({}, True), ({"stop": ("z",)}, False), ({"indent": 2}, False), ({"line_seconds": 9.0}, False)]
)
def test_a_model_that_cannot_drop_a_cell_waits_for_what_only_the_text_may_end(
    fields: dict[str, Any], known: bool
) -> None:
    driver = Driver(FakeModel(can_trim=False, max_draft=0), ahead=True)
    driver.add("ab", max_tokens=LONG, **fields)
    driver.step()
    driver.step()
    assert (driver.following is not None) == known


@pytest.mark.parametrize("applied", [False, True])
def test_a_cancel_frees_the_cells_after_the_running_step(applied: bool) -> None:
    driver = decoding("one", "two")
    key = 1

    def hang_up() -> None:
        if applied:
            driver.apply()
        driver.cancel(key)

    driver.step(hang_up)
    driver.step()
    released = driver.released(key)
    assert released.wasted == (1 if applied else 2)  # the row that runs, and the one whose token is not sent
    assert released.freed > 0
    assert {chunk.sequence.request.id for chunk in driver.plans[-1].chunks} == {"test"}
    assert len(driver.plans[-1].chunks) == 1


def test_adapters_of_a_step_are_those_of_the_next() -> None:
    driver = decoding("one", adapters=((0, 1.0),), sampling=Sampling(ignore_eos=True))
    assert driver.following is not None
    assert driver.following.adapters == driver.plans[-1].adapters == ((0, 1.0),)


def test_a_full_cache_ends_the_row_of_steps() -> None:
    model = FakeModel(slots=3, context=256, pool=256)
    driver = decoding("x" * 60, "y" * 60, "z" * 60, driver=Driver(model, FakeRunner(model), ahead=True))
    driver.drain()
    assert driver.scheduler.metrics().preempted > 0
    assert all(isinstance(driver.last(key), Finished) for key in (1, 2, 3))


def test_a_preempted_sequence_draws_again_once_its_tokens_are_computed() -> None:
    driver = Driver(FakeModel(slots=3, context=256), ahead=True)
    private = {"cache_prompt": False}
    stays = driver.add("stays", max_tokens=LONG, client="stays", **private)
    greedy = driver.add("x" * 30, n=2, max_tokens=8, client="greedy", **private)
    while driver.following is None or len(driver.plans[-1].chunks) < driver.model.info.slots:
        driver.step()
    for _ in range(2):
        driver.step()
    others = [driver.add("y" * 31, max_tokens=3, client="other", **private)]
    for _ in range(3):
        driver.step()
    others += [driver.add("z" * 32, max_tokens=5, client="third", **private)]
    driver.drain()
    assert driver.scheduler.metrics().preempted == 1
    again = [chunk for plan in driver.plans if not plan.decode for chunk in plan.chunks]
    assert any(chunk.start + chunk.count > chunk.sequence.prompt and chunk.sample for chunk in again)
    assert all(isinstance(driver.last(key), Finished) for key in (stays, greedy, *others))


def test_tokens_that_are_computed_again_are_applied_before_the_next_step() -> None:
    """The cells of the whole prompt are those of another request, so that only generated tokens are left."""
    model = FakeModel(slots=2, context=256, pool=200)
    driver = Driver(model, FakeRunner(model), ahead=True)
    prompt, alone = "x" * 60, Driver()
    texts = [prompt + "ab", prompt]
    for text in texts:
        driver.add(text, max_tokens=LONG)
        alone.add(text, max_tokens=LONG)
    driver.drain()
    alone.drain()
    assert driver.scheduler.metrics().preempted == 1
    again = [chunk for plan in driver.plans if not plan.decode for chunk in plan.chunks]
    assert any(chunk.start == len(prompt) and chunk.sample for chunk in again)
    assert [driver.text(key) for key in (1, 2)] == [alone.text(key) for key in (1, 2)]


def test_the_last_step_of_a_row_of_steps_is_not_current_once_it_is_applied() -> None:
    driver = decoding("one", "two")
    driver.step(lambda: driver.cancel(1))
    assert driver.following is None
    driver.cancel(2)
    assert not driver.scheduler.in_step.abandoned
