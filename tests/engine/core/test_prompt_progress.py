"""Progress of prompts: where each begins, and after each of its steps."""

from engine.events import Event, Finished, Text
from engine.testing.fake_model import FakeModel
from tests.engine.driver import Driver


def progress_of(events: list[Event]) -> list[tuple[int, int, int]]:
    found = [event.progress for event in events if isinstance(event, Text) and event.progress]
    return [(one.total, one.cached, one.processed) for one in found]


def test_a_prompt_reports_its_beginning_and_each_step() -> None:
    driver = Driver()
    key = driver.serve("hello", max_tokens=4, stream=True, progress=True)
    total = len("hello")
    assert progress_of(driver.news[key]) == [(total, 0, 0), (total, 0, total)]
    texts = [event for event in driver.news[key] if isinstance(event, Text) and not event.progress]
    assert [event.decode_seconds for event in texts] == [0.0, 1.0, 2.0]
    assert isinstance(driver.last(key), Finished)


def test_a_cached_prompt_reports_what_it_found() -> None:
    driver = Driver()
    driver.serve("hello", max_tokens=1)
    key = driver.serve("hello", max_tokens=1, stream=True, progress=True)
    total = len("hello")
    assert progress_of(driver.news[key]) == [(total, total - 1, total - 1), (total, total - 1, total)]


def test_nothing_is_reported_unasked() -> None:
    driver = Driver()
    key = driver.serve("hello", max_tokens=4, stream=True)
    assert progress_of(driver.news[key]) == []
    assert all(event.decode_seconds == 0 for event in driver.news[key] if isinstance(event, Text))


def test_a_preempted_prompt_has_read_no_less_than_it_found() -> None:
    driver = Driver(FakeModel(slots=2, context=4096))
    driver.add("x" * 500, max_tokens=1)
    driver.drain()
    key = driver.add("x" * 500, "y" * 1200, max_tokens=50, client="one", stream=True, progress=True)
    while driver.ledger.slots[1].size < 600:
        driver.step()
    driver.add("z" * 100, client="other")
    driver.drain()
    found = [one for one in progress_of(driver.news[key]) if one[0] == 500]
    assert len(found) > 2, "it is computed again"
    assert all(cached == 499 <= processed for _, cached, processed in found)


def test_the_progress_of_a_preempted_prompt_stands_still_until_it_is_computed_again() -> None:
    driver = Driver(FakeModel(slots=2, context=4096))
    key = driver.add(
        "x" * 1200, "y" * 1200, max_tokens=50, client="one", cache_prompt=False, stream=True, progress=True
    )
    while min(slot.size for slot in driver.ledger.slots) < 600:
        driver.step()
    driver.add("z" * 100, client="other")
    driver.drain()
    assert driver.scheduler.metrics().preempted == 1
    for choice in range(2):
        found = progress_of([event for event in driver.news[key] if isinstance(event, Text) and event.choice == choice])
        processed = [one[2] for one in found]
        assert processed == sorted(processed)
        assert processed[-1] == 1200
