"""Progress of prompts: where each begins, and after each of its steps."""

from engine.events import Event, Finished, Text
from tests.engine.driver import Driver


def progress_of(events: list[Event]) -> list[tuple[int, int, int]]:
    found = [event.progress for event in events if isinstance(event, Text) and event.progress]
    return [(one.total, one.cached, one.processed) for one in found]


def test_a_prompt_reports_its_beginning_and_each_step() -> None:
    driver = Driver()
    key = driver.add("hello", max_tokens=4, stream=True, progress=True)
    driver.drain()
    total = len("hello")
    assert progress_of(driver.news[key]) == [(total, 0, 0), (total, 0, total)]
    texts = [event for event in driver.news[key] if isinstance(event, Text) and not event.progress]
    assert [event.decode_seconds for event in texts] == [0.0, 1.0, 2.0]
    assert isinstance(driver.last(key), Finished)


def test_a_cached_prompt_reports_what_it_found() -> None:
    driver = Driver()
    driver.add("hello", max_tokens=1)
    driver.drain()
    key = driver.add("hello", max_tokens=1, stream=True, progress=True)
    driver.drain()
    total = len("hello")
    assert progress_of(driver.news[key]) == [(total, total - 1, total - 1), (total, total - 1, total)]


def test_nothing_is_reported_unasked() -> None:
    driver = Driver()
    key = driver.add("hello", max_tokens=4, stream=True)
    driver.drain()
    assert progress_of(driver.news[key]) == []
    assert all(event.decode_seconds == 0 for event in driver.news[key] if isinstance(event, Text))
