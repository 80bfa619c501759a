"""Log-probabilities of answers and prompts: exact, reported once, each prompt computed once, a few rows per pass."""

import random

import pytest

from engine.core.step import SCORED_AT_ONCE
from engine.events import Finished, FinishReason, Text, TokenDetail
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver, direct
from tests.repeat import first

PROMPT = "".join(random.Random(2).choices("abcdefgh", k=300))
ASKED = {"echo": True, "logprobs": 2, "max_tokens": 5}


def check(driver: Driver, key: int, prompt: str = PROMPT, choices: int = 1) -> None:
    """Check that every choice reports its prompt, then its answer, with the directly computed log-probabilities."""
    for choice in range(choices):
        text, details = driver.text(key, choice), driver.details(key, choice)
        assert text.startswith(prompt)
        assert details == direct(list(text.encode()), 2)


def scored(driver: Driver) -> list[int]:
    """Return the number of rows that each pass scored."""
    return [sum(len(chunk.scored) for chunk in plan.chunks) for plan in driver.plans]


def computed(driver: Driver) -> int:
    return sum(plan.tokens for plan in driver.plans)


def test_prompt_and_answer_have_the_directly_computed_logprobs() -> None:
    driver = Driver()
    key = driver.serve(PROMPT, **ASKED)
    check(driver, key)


def test_streamed_details_equal_whole_ones_and_come_with_their_text() -> None:
    driver = Driver()
    whole = driver.add("xy" + PROMPT, **ASKED)
    streamed = driver.serve("xy" + PROMPT, **ASKED, stream=True)
    assert driver.details(streamed) == driver.details(whole)
    first, *others = [event for event in driver.news[streamed] if isinstance(event, Text | Finished)]
    assert len(first.details) == len("xy" + PROMPT) + 1
    assert [len(event.details) for event in others] == [1] * 4


def test_without_echo_only_the_answer_is_reported_and_no_row_is_scored() -> None:
    driver = Driver()
    key = driver.serve(PROMPT, logprobs=2, max_tokens=5)
    assert driver.details(key) == direct(list((PROMPT + driver.text(key)).encode()), 2)[-5:]
    assert driver.run.scored == 0


def test_an_echo_without_logprobs_reuses_cells() -> None:
    driver = Driver()
    driver.serve(PROMPT, max_tokens=1)
    before = computed(driver)
    key = driver.serve(PROMPT, echo=True, token_ids=True, max_tokens=1)
    assert driver.details(key) == [TokenDetail(byte, bytes([byte])) for byte in driver.text(key).encode()]
    assert driver.text(key).startswith(PROMPT)
    assert computed(driver) - before == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_alone_can_be_scored(stream: bool) -> None:
    driver = Driver()
    key = driver.serve(PROMPT, echo=True, logprobs=0, max_tokens=0, stream=stream)
    finished = driver.finished(key)
    assert (finished.text, finished.reason, finished.tokens) == (PROMPT, FinishReason.LENGTH, 0)
    assert list(finished.details) == direct(list(PROMPT.encode()), 0)


@pytest.mark.parametrize("prompt", [PROMPT, "short"])
@pytest.mark.parametrize("slots", first(1, [2, 8]))
@pytest.mark.parametrize("can_trim", [True, False])
@pytest.mark.parametrize("cache", [True, False])
def test_the_choices_of_a_prompt_score_it_once(prompt: str, slots: int, can_trim: bool, cache: bool) -> None:
    driver = Driver(FakeModel(slots=slots, can_trim=can_trim))
    key = driver.serve(prompt, **ASKED, n=8, cache_prompt=cache)
    assert driver.run.scored == len(prompt) - 1
    check(driver, key, prompt, choices=8)


def test_the_choices_of_a_prompt_compute_it_once() -> None:
    driver = Driver(FakeModel(slots=8))
    driver.serve(PROMPT, **ASKED, n=8)
    assert computed(driver) == len(PROMPT) + 7 + 8 * 4


def test_a_pass_scores_a_few_rows_and_a_lone_prompt_takes_no_more_passes_than_that_needs() -> None:
    driver = Driver()
    driver.serve(PROMPT, **{**ASKED, "max_tokens": 1})
    assert scored(driver) == [64, 64, 64, 64, 43]
    assert SCORED_AT_ONCE == 64


def test_a_prompt_with_as_many_scores_as_a_pass_computes_takes_no_second_pass() -> None:
    driver = Driver()
    driver.add(PROMPT[: SCORED_AT_ONCE + 1], **ASKED)
    assert driver.compute().tokens == SCORED_AT_ONCE + 1


@pytest.mark.parametrize(
    ("length", "most", "chunk"),
    [(200, SCORED_AT_ONCE, 64), (20, 3 * 21, 64), (200, SCORED_AT_ONCE, 256), (20, SCORED_AT_ONCE, 256)],
)
def test_many_prompts_share_the_rows_that_score(length: int, most: int, chunk: int) -> None:
    driver = Driver(FakeModel(slots=16, min_prefill_chunk=chunk))
    keys = [driver.add(f"{i:02}" + PROMPT[:length], **ASKED) for i in range(16)]
    driver.drain()
    assert max(scored(driver)) == most
    assert all(part.count for plan in driver.plans for part in plan.chunks), "a prompt without room has no part"
    for i, key in enumerate(keys):
        check(driver, key, f"{i:02}" + PROMPT[:length])


def test_decoding_neighbours_wait_for_no_more_than_one_scoring_pass() -> None:
    driver = Driver()
    driver.add("n", max_tokens=50)
    driver.step()
    driver.add(PROMPT, **ASKED)
    assert [driver.compute().decode for _ in range(8)] == [False, True] * 4


def test_a_scored_prompt_reuses_no_cells_but_provides_them() -> None:
    driver = Driver()
    driver.serve(PROMPT, max_tokens=1)
    key = driver.serve(PROMPT, **{**ASKED, "max_tokens": 1})
    check(driver, key)
    assert driver.run.scored == len(PROMPT) - 1
    before = computed(driver)
    driver.serve(PROMPT, max_tokens=1)
    assert computed(driver) - before == 1


def test_two_requests_for_the_same_prompt_both_get_it_scored() -> None:
    driver = Driver()
    keys = [driver.add(PROMPT, **ASKED) for _ in range(2)]
    driver.drain()
    for key in keys:
        check(driver, key)


def test_an_aborted_pass_scores_no_row() -> None:
    driver = Driver()
    key = driver.add(PROMPT, **ASKED)
    driver.step()
    driver.step(during=driver.run.abort)
    driver.drain()
    check(driver, key)


def test_choices_continue_after_the_preemption_of_the_scoring_one() -> None:
    model = FakeModel(slots=4)
    driver = Driver(model, FakeRunner(model, capacity=len(PROMPT) + 60))
    other = driver.add("z" * 100, max_tokens=20, cache_prompt=False)
    key = driver.add(PROMPT, **ASKED, n=2)
    driver.drain(1000)
    assert driver.scheduler.metrics().prompt_tokens > 100 + len(PROMPT), "its first rows were computed twice"
    assert isinstance(driver.last(other), Finished)
    check(driver, key, choices=2)
    assert driver.run.scored == len(PROMPT) - 1


def test_a_preempted_choice_reports_no_token_twice() -> None:
    model = FakeModel(slots=3)
    driver = Driver(model, FakeRunner(model, capacity=60))
    prompts = ["first one", "second one", "third one"]
    keys = [driver.add(prompt, **{**ASKED, "max_tokens": 15}, stream=True, cache_prompt=False) for prompt in prompts]
    driver.drain(500)
    assert computed(driver) > sum(len(prompt) + 14 for prompt in prompts), "one was put back"
    for key, prompt in zip(keys, prompts, strict=True):
        check(driver, key, prompt)


def test_equal_requests_cost_equal_work_and_each_step_of_an_answer_one_row() -> None:
    driver = Driver()
    work = set()
    for _ in range(30):
        before = len(driver.plans)
        driver.serve(PROMPT, **ASKED)
        work.add(tuple(plan.tokens for plan in driver.plans[before:]))
    assert work == {(64, 64, 64, 64, 44, 1, 1, 1, 1)}


def test_a_choice_that_is_cancelled_while_its_prompt_is_scored_leaves_its_neighbours_scores_alone() -> None:
    driver = Driver()
    gone, stays = driver.add(PROMPT, **ASKED), driver.add("x" + PROMPT, **ASKED)
    driver.step()
    driver.step(during=lambda: driver.cancel(gone))
    driver.drain()
    check(driver, stays, "x" + PROMPT)
