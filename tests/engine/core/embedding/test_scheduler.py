"""The embedding scheduler: shares, turns, cancels and counts, with an embedder that checks every pass."""

import random
from dataclasses import dataclass, field

import pytest

from engine.core.budget import SMALLEST
from engine.core.embedding.scheduler import EmbeddingScheduler
from engine.core.embedding.step import EmbeddingJob, EmbeddingPlan
from engine.core.kv.cell_changes import Removal
from engine.core.lane import News
from engine.core.turns import Turn
from engine.errors import Busy
from engine.events import Embedded, Event, Failed, Released
from engine.info import EngineMetrics
from engine.request import EmbeddingRequest
from engine.testing.fake_embedder import FakeEmbedder, vector_of


@dataclass
class Driver:
    """Steps one scheduler over one embedder and keeps all events by key."""

    embedder: FakeEmbedder = field(default_factory=FakeEmbedder)
    queue_limit: int = 100
    news: dict[int, list[Event]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scheduler = EmbeddingScheduler(self.embedder.limits, step_target=1.0, queue_limit=self.queue_limit)

    def add(self, key: int, *lengths: int, client: str = "") -> None:
        self.scheduler.check_room(client)
        self.scheduler.add(
            EmbeddingJob(
                key, EmbeddingRequest(id="test", inputs=(), client=client), [[key] * length for length in lengths]
            )
        )

    def cancel(self, key: int) -> Released | None:
        return self.scheduler.cancel(key)

    def plan(self, *, hurried: bool = False) -> EmbeddingPlan:
        """Plan the next pass after dropping the cells of ended texts; the plan is empty without demand."""
        turn = Turn.BULK if self.scheduler.demand().bulk else None
        work = self.scheduler.plan(turn, contended=hurried)
        for change in work.changes:
            assert isinstance(change, Removal)
            self.embedder.drop(change.seq_id)
        if self.scheduler.cells > self.embedder.room:
            passes = self.embedder.passes
            self.embedder.shut_down()
            self.embedder = self.embedder.larger(self.scheduler.cells)
            self.embedder.passes = passes
        self._record(work.news)
        return work.plan or ()

    def step(self, *, hurried: bool = False) -> EmbeddingPlan:
        plan = self.plan(hurried=hurried)
        if plan:
            self._record(self.scheduler.apply(plan, self.embedder.run(plan)))
        return plan

    def drain(self) -> None:
        while self.scheduler.busy:
            computes = self.scheduler.demand().bulk
            assert bool(self.step()) is computes, "busy with nothing"

    def metrics(self) -> EngineMetrics:
        return self.scheduler.metrics()

    def _record(self, news: News) -> None:
        for key, event in news:
            self.news.setdefault(key, []).append(event)


def test_every_text_is_embedded_whole_and_reported_once() -> None:
    driver = Driver()
    driver.add(1, 3, 200, 1)
    driver.drain()
    assert sorted(driver.news[1], key=lambda event: event.input if isinstance(event, Embedded) else -1) == [
        Embedded(index, vector_of([1] * length)) for index, length in enumerate((3, 200, 1))
    ]
    assert driver.embedder.cells == {}


def test_short_texts_share_a_pass() -> None:
    driver = Driver()
    driver.add(1, 5, 5, 5)
    driver.step()
    assert driver.embedder.passes == [[(0, 5), (1, 5), (2, 5)]]
    assert not driver.scheduler.busy


def test_clients_that_left_are_forgotten() -> None:
    driver = Driver()
    for key in range(3):
        driver.add(key, 5, 200, client=f"client {key}")
    driver.step()
    driver.cancel(0)
    driver.drain()
    assert not driver.scheduler._turns._clients


def test_a_long_text_takes_several_passes_where_it_may_be_split() -> None:
    driver = Driver(FakeEmbedder(rows=64, cells=256))
    driver.add(1, 150)
    driver.drain()
    assert driver.embedder.passes == [[(0, 64)], [(0, 64)], [(0, 22)]]


def test_a_text_that_may_not_be_split_waits_for_a_pass_of_its_own() -> None:
    driver = Driver(FakeEmbedder(rows=60, cells=60, splits=False))
    driver.add(1, 40, 20, 1)
    driver.drain()
    assert driver.embedder.passes == [[(0, 40), (1, 20)], [(0, 1)]]


def test_a_pass_that_neighbours_wait_for_is_no_larger_than_the_target_allows() -> None:
    driver = Driver(FakeEmbedder(rows=512, cells=4096))
    driver.add(1, 2000)
    assert sum(chunk.count for chunk in driver.step(hurried=True)) == SMALLEST
    assert sum(chunk.count for chunk in driver.step()) > SMALLEST


def test_requests_take_turns() -> None:
    driver = Driver(FakeEmbedder(rows=10, cells=10, texts=2))
    driver.add(1, *[5] * 20)
    driver.add(2, 5)
    driver.step()
    assert driver.news[2] == [Embedded(0, vector_of([2] * 5))]


def test_cells_bound_the_texts_under_way() -> None:
    driver = Driver(FakeEmbedder(rows=64, cells=128))
    driver.add(1, 100, 100)
    assert [chunk.text.index for chunk in driver.step()] == [0]
    assert [chunk.text.index for chunk in driver.step()] == [0]
    assert [chunk.text.index for chunk in driver.step()] == [1]


def test_a_text_with_more_tokens_than_cells_waits_until_no_other_is_unfinished_and_gets_more() -> None:
    driver = Driver(FakeEmbedder(rows=64, cells=1000, smallest=128))
    driver.add(1, 100, 300, 20)
    assert [(chunk.text.index, chunk.count) for chunk in driver.step()] == [(0, 64)]
    assert ([(chunk.text.index, chunk.count) for chunk in driver.step()], driver.scheduler.cells) == ([(0, 36)], 128)
    assert ([(chunk.text.index, chunk.count) for chunk in driver.step()], driver.scheduler.cells) == ([(1, 64)], 512)
    driver.drain()
    driver.add(2, 900)
    driver.drain()
    assert (driver.scheduler.cells, driver.news[2]) == (1000, [Embedded(0, vector_of([2] * 900))])


@pytest.mark.parametrize(("tokens", "cells"), [(1, 100), (100, 100), (101, 128), (128, 128), (129, 256), (257, 500)])
def test_an_embedder_for_a_longer_text_has_a_power_of_two_of_cells(tokens: int, cells: int) -> None:
    assert FakeEmbedder(rows=64, cells=500, smallest=100).limits.cells_for(tokens) == cells


def test_a_full_queue_is_busy_and_started_requests_do_not_count() -> None:
    driver = Driver(FakeEmbedder(texts=1), queue_limit=2)
    driver.add(1, 100)
    driver.step()
    driver.add(2, 1)
    driver.add(3, 1)
    with pytest.raises(Busy) as caught:
        driver.add(4, 1)
    assert caught.value.code == "queue_full"


@pytest.mark.parametrize("texts", [1, 2])
def test_a_request_leaves_the_queue_once_also_if_it_is_cancelled_later(texts: int) -> None:
    driver = Driver(FakeEmbedder(texts=texts), queue_limit=1)
    driver.add(1, 100, 100)
    driver.step()
    driver.cancel(1)
    driver.add(2, 1)
    with pytest.raises(Busy):
        driver.add(3, 1)


def test_a_client_cannot_fill_the_queue_for_others() -> None:
    driver = Driver(FakeEmbedder(texts=1), queue_limit=9)
    driver.add(1, 100, client="greedy")
    driver.step()
    for key in range(2, 10):
        driver.add(key, 1, client="greedy")
    with pytest.raises(Busy, match="8 requests of this client"):
        driver.add(10, 1, client="greedy")
    driver.add(11, 1, client="other")
    driver.cancel(2)
    driver.add(12, 1, client="third")


def test_a_cancel_of_a_waiting_request_is_answered_at_once() -> None:
    driver = Driver()
    driver.add(1, 3, 4)
    assert driver.cancel(1) == Released("queued", 0, 0)
    assert not driver.scheduler.busy


def test_a_cancel_of_a_running_request_is_answered_when_its_cells_are_dropped() -> None:
    driver = Driver()
    driver.add(1, 100)
    driver.add(2, 100)
    driver.step()
    assert driver.cancel(1) is None
    assert driver.scheduler.busy
    driver.plan()
    assert driver.news[1] == [Released("embedding", 0, 64, 64)]
    assert 0 not in driver.embedder.cells
    driver.drain()
    assert driver.news[2] == [Embedded(0, vector_of([2] * 100))]


def test_a_cancelled_request_costs_what_was_computed_and_waits_no_more() -> None:
    driver = Driver(FakeEmbedder(rows=64, cells=200, texts=3, splits=True))
    driver.add(1, 150, 20, 150)
    (chunk,) = driver.step()
    assert (chunk.text.charged, driver.metrics().embedding_waiting) == (150, 3)
    driver.cancel(1)
    assert (chunk.text.charged, driver.metrics().embedding_waiting) == (64, 0)
    driver.drain()


@pytest.mark.parametrize("aborts", [False, True])
def test_a_client_pays_for_the_pass_during_which_it_leaves(*, aborts: bool) -> None:
    driver = Driver(FakeEmbedder(rows=64, cells=200, splits=True))
    driver.add(1, 150)
    (chunk,) = chunks = driver.plan()
    driver.cancel(1)
    if aborts:
        driver.embedder.abort()
    driver.scheduler.apply(chunks, driver.embedder.run(chunks))
    assert chunk.text.charged == 64
    [(_, released)] = driver.scheduler.plan(None, contended=False).news
    assert isinstance(released, Released)
    assert (released.freed, released.prompt_tokens) == (0, 0)


def test_a_pass_is_abandoned_when_all_its_requests_are_cancelled() -> None:
    driver = Driver()
    driver.add(1, 5)
    driver.add(2, 5)
    chunks = driver.plan()
    abandoned = [driver.scheduler.in_step.abandoned]
    for key in (1, 2):
        driver.cancel(key)
        abandoned.append(driver.scheduler.in_step.abandoned)
    assert abandoned == [False, False, True]
    driver.embedder.abort()
    assert driver.scheduler.apply(chunks, driver.embedder.run(chunks)) == []
    assert driver.metrics().aborted == 1


def test_a_request_cancelled_during_a_pass_gets_no_result_of_it() -> None:
    driver = Driver()
    driver.add(1, 5)
    driver.add(2, 5)
    chunks = driver.plan()
    driver.cancel(1)
    news = driver.scheduler.apply(chunks, driver.embedder.run(chunks))
    assert news == [(2, Embedded(0, vector_of([2] * 5)))]


def test_a_text_without_a_vector_fails_its_request_and_no_other() -> None:
    driver = Driver()
    driver.embedder.numbers = False
    driver.add(1, 5, 100)
    driver.step()
    driver.embedder.numbers = True
    driver.add(2, 5)
    driver.drain()
    assert [type(event) for event in driver.news[1]] == [Failed]
    assert [type(event) for event in driver.news[2]] == [Embedded]
    assert driver.embedder.cells == {}


def test_metrics_count_the_finished_work() -> None:
    driver = Driver()
    driver.add(1, 100, 3)
    driver.step()
    assert driver.metrics().embedding_waiting == 2
    driver.drain()
    metrics = driver.metrics()
    assert (metrics.embedding_waiting, metrics.embeddings, metrics.embedding_tokens, metrics.steps) == (0, 2, 103, 2)


def test_inputs_that_the_embedder_does_not_take_at_once_wait() -> None:
    driver = Driver(FakeEmbedder(texts=2))
    driver.add(1, *[3] * 7)
    counts = []
    while driver.scheduler.busy:
        driver.step()
        counts.append((driver.metrics().embedding_running, driver.metrics().embedding_waiting))
    assert counts == [(2, 5), (2, 3), (1, 1), (0, 0)]
    assert driver.metrics().embedding_places == 2


@pytest.mark.parametrize("seed", range(20))
def test_random_requests_and_cancels_each_end_once_and_hold_no_cells(seed: int) -> None:
    rng = random.Random(seed)
    splits = rng.random() < 0.5
    driver = Driver(FakeEmbedder(rows=64, cells=200, smallest=rng.randint(64, 200), texts=3, splits=splits))
    longest = driver.embedder.limits.longest
    cancelled: dict[int, Released | None] = {}
    sizes = {key: [rng.randint(1, longest) for _ in range(rng.randint(1, 5))] for key in range(1, 30)}
    for key, lengths in sizes.items():
        driver.add(key, *lengths)
        for _ in range(rng.randint(0, 2)):
            driver.step(hurried=rng.random() < 0.5)
        victim = rng.randint(1, key)
        if victim in driver.scheduler and rng.random() < 0.4:
            cancelled[victim] = driver.cancel(victim)
    driver.drain()
    for key, lengths in sizes.items():
        events = driver.news.get(key, [])
        released = [event for event in events if isinstance(event, Released)]
        assert len(released) == (key in cancelled and cancelled[key] is None)
        if key not in cancelled:
            assert sorted(event.input for event in events if isinstance(event, Embedded)) == list(range(len(lengths)))
    assert driver.embedder.cells == {}
