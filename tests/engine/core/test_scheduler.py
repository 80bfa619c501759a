"""The scheduler: admission, turns, cancellation, preemption and failures."""

import pytest

from engine.core import group
from engine.core.budget import SMALLEST, UNHURRIED
from engine.core.step import DrawFailure, Outcome, StepPlan, StepResult
from engine.errors import Busy
from engine.events import Failed, Finished, FinishReason, FirstToken, Released, Started
from engine.testing.fake_model import END, FakeModel, letters
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver


def counts(plan: StepPlan) -> list[int]:
    return [chunk.count for chunk in plan.chunks]


def alone(prompt: str, **fields: object) -> str:
    """Return the answer to a prompt on an otherwise idle engine."""
    driver = Driver()
    key = driver.serve(prompt, **fields)
    return driver.text(key)


def test_a_request_starts_and_finishes_with_its_text() -> None:
    driver = Driver()
    key = driver.serve("hello", max_tokens=3)
    assert driver.news[key][0] == Started()
    expected = Finished(0, driver.text(key), FinishReason.LENGTH, 3, 0, prompt_seconds=1.0, decode_seconds=2.0, slot=0)
    assert driver.last(key) == expected
    assert len(driver.text(key)) == 3


def test_an_idle_scheduler_plans_no_pass() -> None:
    driver = Driver()
    driver.serve("hello")
    passes = len(driver.run.passes)
    assert not driver.scheduler.busy
    assert driver.step() is None
    assert len(driver.run.passes) == passes


def test_concurrent_requests_get_the_same_text_as_alone() -> None:
    driver = Driver()
    prompts = [f"prompt {i}" * (i + 1) for i in range(10)]
    keys = [driver.add(prompt, max_tokens=5 + i) for i, prompt in enumerate(prompts)]
    driver.drain()
    for i, (key, prompt) in enumerate(zip(keys, prompts, strict=True)):
        assert driver.text(key) == alone(prompt, max_tokens=5 + i)


def test_decode_rows_and_prompt_chunks_of_the_budget_take_turns() -> None:
    driver = Driver(FakeModel(context=4096))
    driver.add("a", max_tokens=100)
    driver.step()
    driver.add("b" * 1000, max_tokens=5)
    plans = [driver.compute() for _ in range(8)]
    assert [plan.decode for plan in plans] == [False, True] * 4
    assert counts(plans[0]) == [64]


def test_a_prompt_draws_in_its_own_last_step_also_beside_decoding_neighbours() -> None:
    driver = Driver()
    driver.add("a", max_tokens=100)
    driver.step()
    key = driver.add("b" * 10, max_tokens=5)
    assert counts(driver.compute()) == [10]
    assert FirstToken() in driver.news[key]
    assert counts(driver.compute()) == [1, 1]


def test_a_prompt_whose_last_token_alone_is_left_is_a_row_of_a_decode_step() -> None:
    driver = Driver()
    first = driver.add("b" * 10, max_tokens=1)
    assert counts(driver.compute()) == [10]
    driver.add("a", max_tokens=100)
    driver.step()
    driver.add("b" * 10, max_tokens=5)
    assert counts(driver.compute()) == [1, 1]
    assert isinstance(driver.last(first), Finished)


def test_a_lone_prompt_draws_in_its_own_last_pass() -> None:
    driver = Driver()
    key = driver.add("b" * 10, max_tokens=1)
    assert counts(driver.compute()) == [10]
    assert isinstance(driver.last(key), Finished)


def test_more_choices_than_slots_are_served_in_turn_and_block_no_other_request() -> None:
    driver = Driver(FakeModel(slots=4))
    many = driver.add("many", n=20, max_tokens=50)
    driver.step()
    other = driver.add("other", max_tokens=2)
    driver.finish(other)
    assert sum(isinstance(event, Finished) for event in driver.news[many]) <= 4
    driver.drain()
    assert sum(isinstance(event, Finished) for event in driver.news[many]) == 20


def test_a_request_with_several_choices_gives_a_slot_to_another_client_at_once() -> None:
    driver = Driver(FakeModel(slots=4))
    many = driver.add("many", n=20, max_tokens=50, client="many")
    for _ in range(5):
        driver.step()
    others = [driver.add(f"other {i}", max_tokens=2, client="other") for i in range(6)]
    driver.step()
    assert [Started() in driver.news.get(other, []) for other in others] == [True] * 3 + [False] * 3
    assert sum(slot.request_id is not None for slot in driver.scheduler.inspect()) == 4
    driver.finish(others[-1])
    assert not any(isinstance(event, Finished) for event in driver.news[many]), "no choice had to end"
    driver.drain()
    ends = [event.choice for event in driver.news[many] if isinstance(event, Finished)]
    assert sorted(ends) == list(range(20))
    assert {driver.text(many, choice) for choice in range(20)} == {alone("many", max_tokens=50)}


def test_the_last_running_choice_of_a_request_keeps_its_slot() -> None:
    driver = Driver(FakeModel(slots=2))
    runs = [driver.add("runs", max_tokens=50, client="a"), driver.add("runs", n=9, max_tokens=50, client="b")]
    driver.step()
    waits = driver.add("waits", max_tokens=1, client="c")
    for _ in range(10):
        driver.step()
    assert waits not in driver.news
    assert all(not isinstance(driver.last(key), Finished) for key in runs)
    driver.drain()


def test_choices_do_not_give_way_to_their_own_client() -> None:
    driver = Driver(FakeModel(slots=2))
    driver.add("many", n=3, max_tokens=50, client="a")
    driver.step()
    second = driver.add("second", max_tokens=1, client="a")
    for _ in range(10):
        driver.step()
    assert second not in driver.news
    driver.drain()


def test_a_cancelled_request_gives_nothing_more_after_it_gave_way() -> None:
    driver = Driver(FakeModel(slots=2))
    many = driver.add("many", n=5, max_tokens=50, client="a")
    driver.step()
    other = driver.add("other", max_tokens=5, client="b")
    driver.step()
    driver.cancel(many)
    driver.drain()
    assert isinstance(driver.last(many), Released)
    assert isinstance(driver.last(other), Finished)
    assert driver.scheduler.metrics().waiting == 0


def test_a_client_cannot_fill_the_queue_for_others() -> None:
    driver = Driver(FakeModel(slots=1), queue_limit=90)
    driver.add("runs", client="greedy")
    driver.step()
    for client, places in (("greedy", 80), ("second", 9)):
        for _ in range(places):
            driver.add("waits", client=client, max_tokens=1)
        if client == "greedy":
            with pytest.raises(Busy, match="80 requests of this client") as refused:
                driver.add("too many", client=client)
            assert refused.value.code == "queue_full"
    driver.add("waits", client="third", max_tokens=1)
    with pytest.raises(Busy, match=r"^the queue is full \(limit: 90\); try again later$"):
        driver.add("too many", client="fourth")
    driver.drain()
    driver.serve("again", client="greedy")


def test_a_full_queue_refuses_a_request_and_running_ones_do_not_count() -> None:
    driver = Driver(FakeModel(slots=1), queue_limit=2)
    driver.add("runs")
    driver.step()
    driver.add("waits")
    driver.add("waits")
    with pytest.raises(Busy) as refused:
        driver.add("too many")
    assert refused.value.code == "queue_full"
    driver.drain()


def test_cancelling_a_waiting_request_is_immediate_and_frees_no_cells() -> None:
    driver = Driver(FakeModel(slots=1))
    first = driver.add("first")
    driver.step()
    second = driver.add("second")
    driver.cancel(second)
    assert driver.last(second) == Released("queued", 0, 0)
    driver.drain()
    assert driver.text(first) == alone("first")
    assert driver.news[second] == [Released("queued", 0, 0)]


def test_a_cancelled_decode_has_no_row_in_any_later_pass_and_its_cells_go_first() -> None:
    driver = Driver()
    gone, stays = driver.add("gone", max_tokens=50), driver.add("stays", max_tokens=9)
    for _ in range(3):
        driver.step()
    driver.cancel(gone)
    plan = driver.compute()
    assert len(plan.chunks) == 1
    released = driver.released(gone)
    assert (released.phase, released.tokens) == ("decode", 3)
    assert released.freed == len("gone") + 2
    assert driver.run.cache.cells[0] == []
    driver.drain()
    assert driver.text(stays) == alone("stays", max_tokens=9)


def test_a_cancel_while_the_pass_runs_drops_its_draw() -> None:
    driver = Driver()
    gone, stays = driver.add("gone", max_tokens=50), driver.add("stays", max_tokens=9)
    driver.step()
    driver.step(during=lambda: driver.cancel(gone))
    assert not driver.scheduler.in_step.abandoned
    driver.drain()
    assert isinstance(driver.last(gone), Released)
    assert len([e for e in driver.news[gone] if isinstance(e, Released)]) == 1
    assert driver.text(stays) == alone("stays", max_tokens=9)


def test_a_cancel_between_plan_and_pass_is_not_carried_in_it() -> None:
    driver = Driver()
    gone, stays = driver.add("gone", max_tokens=50), driver.add("stays", max_tokens=9)
    driver.step()
    made = len(driver.run.passes)
    assert driver.step(before=lambda: driver.cancel(gone)) is None
    assert len(driver.run.passes) == made
    driver.drain()
    assert all(ids == [(1, 1)] for ids in driver.run.passes[made:])
    assert driver.text(stays) == alone("stays", max_tokens=9)


def test_a_release_is_sent_after_the_cells_of_an_ended_choice_are_dropped() -> None:
    driver = Driver(FakeModel(slots=1))
    key = driver.add("private", n=2, max_tokens=1, cache_prompt=False)
    driver.step()
    driver.cancel(key)
    assert not isinstance(driver.last(key), Released)
    driver.step()
    assert driver.run.cache.cells[0] == []
    assert isinstance(driver.last(key), Released)


def test_a_second_choice_is_not_overtaken_for_ever() -> None:
    driver = Driver(FakeModel(slots=1))
    key = driver.add("two choices", n=2, max_tokens=2)
    for _ in range(40):
        driver.add("another", max_tokens=2)
        driver.step()
    assert sum(isinstance(event, Finished) for event in driver.news[key]) == 2


def test_prompts_of_several_requests_keep_to_the_target_without_decode_rows() -> None:
    driver = Driver(FakeModel(context=4096))
    driver.add("a" * 1000)
    driver.add("b" * 1000)
    assert [sum(counts(driver.compute())) for _ in range(2)] == [64, 64]


def test_a_long_prompt_keeps_to_the_target_beside_a_choice_of_its_own_request() -> None:
    driver = Driver(FakeModel(context=4096))
    driver.add("a" * 10, "b" * 1000, max_tokens=50)
    assert counts(driver.compute()) == [10]
    assert [counts(driver.compute()) for _ in range(2)] == [[1], [64]]


def test_a_request_alone_takes_large_passes() -> None:
    driver = Driver(FakeModel(context=4096))
    driver.add("a" * 1000)
    assert [counts(driver.compute()), counts(driver.compute())] == [[SMALLEST], [UNHURRIED]]


def test_requests_that_free_slots_will_take_do_not_fill_the_queue() -> None:
    driver = Driver(FakeModel(slots=2), queue_limit=1)
    for _ in range(3):
        driver.add("at once")
    with pytest.raises(Busy):
        driver.add("too many")
    driver.drain()


def test_cached_cells_are_evicted_before_a_sequence_is_preempted() -> None:
    model = FakeModel(slots=2)
    driver = Driver(model, FakeRunner(model, capacity=40))
    first = driver.serve("f" * 25, max_tokens=2)
    second = driver.serve("s" * 30, max_tokens=2)
    assert isinstance(driver.last(first), Finished)
    assert isinstance(driver.last(second), Finished)


def test_a_pass_is_abandoned_once_every_row_in_it_is_cancelled() -> None:
    driver = Driver()
    keys = [driver.add("a"), driver.add("b")]
    seen = []

    def hang_up() -> None:
        for key in keys:
            driver.cancel(key)
            seen.append(driver.scheduler.in_step.abandoned)

    driver.step(during=hang_up)
    assert seen == [False, True]
    driver.drain()
    assert all(isinstance(driver.last(key), Released) for key in keys)
    assert driver.scheduler.metrics().free == 4


def test_an_abandoned_prompt_costs_decoding_neighbours_no_pass() -> None:
    driver = Driver(FakeModel(context=4096))
    stays = driver.add("stays", max_tokens=9)
    driver.step()
    driver.step()
    gone = driver.add("x" * 1000)

    def hang_up() -> None:
        driver.cancel(gone)
        assert driver.scheduler.in_step.abandoned
        driver.run.abort()

    driver.step(during=hang_up)
    assert driver.scheduler.metrics().aborted == 1
    driver.drain()
    assert driver.text(stays) == alone("stays", max_tokens=9)


def test_cancelling_one_request_takes_all_its_choices() -> None:
    driver = Driver(FakeModel(slots=2))
    key = driver.add("a", "b", n=3, max_tokens=50)
    for _ in range(3):
        driver.step()
    driver.cancel(key)
    driver.drain()
    metrics = driver.scheduler.metrics()
    assert (metrics.free, metrics.waiting, metrics.active_tokens, metrics.cached_tokens) == (2, 0, 0, 0)
    assert not driver.run.open


def test_a_second_cancel_and_one_after_the_end_are_answered() -> None:
    driver = Driver()
    key = driver.serve("a", max_tokens=1)
    driver.cancel(key)
    driver.cancel(key)
    assert driver.news[key][-2:] == [Released("gone", 0, 0)] * 2


def test_max_tokens_0_computes_the_prompt_and_draws_no_token() -> None:
    driver = Driver()
    key = driver.serve("warm", max_tokens=0)
    assert driver.last(key) == Finished(0, "", FinishReason.LENGTH, 0, 0, prompt_seconds=1.0, slot=0)
    assert driver.scheduler.metrics().cached_tokens == 4


def test_a_failed_draw_fails_its_request_and_no_neighbour() -> None:
    class Failing(FakeRunner):
        def run(self, plan: StepPlan) -> StepResult:
            result = super().run(plan)
            drawing = [chunk for chunk in plan.chunks if chunk.sample]
            draws = tuple(
                (DrawFailure("no candidate", "invalid_grammar", "grammar"),)
                if chunk.sequence.tokens[0] == ord("!")
                else draw
                for chunk, draw in zip(drawing, result.draws, strict=True)
            )
            return StepResult(result.outcome, draws, result.seconds)

    model = FakeModel()
    driver = Driver(model, Failing(model))
    bad, good = driver.add("!", n=2), driver.add("good")
    driver.drain()
    assert driver.last(bad) == Failed("no candidate", "invalid_grammar", "grammar")
    assert driver.text(good) == alone("good")
    assert driver.scheduler.metrics().free == 4


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(
    ("fields", "details"),
    [({"logprobs": 2}, 3 * 16), ({"token_ids": True}, 16), ({"logprobs": 1, "echo": True}, 2 * 22)],
)
def test_an_answer_with_too_many_details_fails_its_request_and_no_neighbour(
    ahead: bool, fields: dict[str, object], details: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(ahead=ahead)
    streamed = {**fields, "stream": True}
    for most in (details - 1, details):
        monkeypatch.setattr(group, "MOST_DETAILS", most)
        large, others = driver.add("abc", n=2, **fields), [driver.add("good"), driver.add("abc", n=2, **streamed)]
        driver.drain()
        expected = Failed if most < details else Finished
        assert isinstance(driver.last(large), expected)
        assert all(isinstance(driver.last(key), Finished) for key in others)
        assert driver.scheduler.metrics().free == 4


def test_without_room_one_sequence_is_preempted_and_all_texts_stay_the_same() -> None:
    model = FakeModel()
    driver = Driver(model, FakeRunner(model, capacity=45))
    prompts = ["first one", "second one", "third one"]
    keys = [driver.add(prompt, max_tokens=12, cache_prompt=False) for prompt in prompts]
    driver.drain(500)
    for key, prompt in zip(keys, prompts, strict=True):
        assert driver.text(key) == alone(prompt, max_tokens=12)
        assert [type(event) for event in driver.news[key]].count(Started) == 1


def test_a_preempted_sequence_starts_again_as_soon_as_another_one_has_ended() -> None:
    driver = Driver(FakeModel(slots=3, context=256, pool=256))
    runs, ends, _ = (driver.add(letter * 60, max_tokens=tokens) for letter, tokens in (("x", 90), ("y", 40), ("z", 90)))
    driver.finish(ends)
    assert driver.scheduler.metrics().preempted == driver.scheduler.metrics().waiting == 1
    driver.step()
    assert driver.scheduler.metrics().waiting == 0
    assert not isinstance(driver.last(runs), Finished)
    driver.drain()


def test_a_request_that_never_finds_room_fails_alone() -> None:
    model = FakeModel()
    driver = Driver(model, FakeRunner(model, capacity=20))
    large = driver.add("l" * 30, cache_prompt=False)
    small = driver.add("small", cache_prompt=False)
    driver.drain(500)
    assert isinstance(driver.last(large), Failed)
    assert driver.text(small) == alone("small")


def test_an_aborted_pass_with_live_rows_is_repeated() -> None:
    driver = Driver()
    key = driver.add("a", max_tokens=3)
    driver.step(during=driver.run.abort)
    driver.drain()
    assert driver.text(key) == alone("a", max_tokens=3)


def test_equal_requests_cost_equal_work() -> None:
    driver = Driver()
    work = set()
    for _ in range(200):
        before = driver.scheduler.metrics()
        driver.serve("the same", cache_prompt=False)
        after = driver.scheduler.metrics()
        work.add(
            (
                after.steps - before.steps,
                after.rows_decoded - before.rows_decoded,
                after.prompt_tokens - before.prompt_tokens,
            )
        )
    assert len(work) == 1


def test_rows_with_copied_logits_are_counted() -> None:
    driver = Driver()
    driver.serve("abc", max_tokens=5)
    assert driver.scheduler.metrics().whole_rows == 5
    driver.serve("abc", max_tokens=5, logprobs=0, echo=True, cache_prompt=False)
    assert driver.scheduler.metrics().whole_rows == 5 + 5 + len("abc") - 1


def test_the_end_token_ends_and_is_counted_but_not_shown() -> None:
    model = FakeModel()
    script = lambda tokens: END if len(tokens) >= 8 else letters(tokens)  # noqa: E731
    driver = Driver(model, FakeRunner(model, script=script))
    key = driver.serve("hello", max_tokens=50)
    finished = driver.finished(key)
    assert (finished.reason, finished.tokens, len(finished.text)) == (FinishReason.STOP, 4, 3)


def test_no_room_without_running_sequences_is_ignored() -> None:
    driver = Driver()
    key = driver.add("a")
    work = driver.plan()
    assert work.plan is not None
    driver.cancel(key)
    assert driver.scheduler.apply(work.plan, StepResult(Outcome.NO_ROOM, (), 1.0)) == []
    driver.drain()
    assert isinstance(driver.last(key), Released)


@pytest.mark.parametrize("scoring", [4, 8, 12])
def test_prompts_that_score_have_their_share_beside_many_that_do_not(scoring: int) -> None:
    driver = Driver(FakeModel(slots=24, context=4096))
    driver.add("a", max_tokens=1000)
    driver.step()
    for letter in "bcde":
        driver.add(letter * 2000, max_tokens=1)
    keys = [driver.add("s" * 40 + str(n), max_tokens=0, echo=True, logprobs=1) for n in range(scoring)]
    for _ in range(60):
        driver.step()
    assert all(isinstance(driver.last(key), Finished) for key in keys)


def test_new_requests_do_not_delay_waiting_ones() -> None:
    driver = Driver(FakeModel(slots=8, context=4096))
    driver.add("a", max_tokens=1000)
    driver.step()
    patient = [driver.add(letter * 60, max_tokens=1) for letter in "bcdefg"]
    for number in range(40):
        driver.add(f"{number:02}" * 8, max_tokens=1)
        driver.step()
    assert all(isinstance(driver.last(key), Finished) for key in patient)
