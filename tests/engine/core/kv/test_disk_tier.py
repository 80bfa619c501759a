"""Prefixes on disk: what is written and read, counted in tokens, with the strict fake runner."""

from dataclasses import replace

import pytest

from engine.core.kv.ledger import COPIED_AT_ONCE
from engine.core.kv.prefix import Prefix
from engine.core.kv.prefix_file import PrefixFile, file_for
from engine.core.kv.prefix_files import GROWTH, WORTH_READING, WORTH_WRITING, PrefixFiles
from engine.events import Finished, Released
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from tests.engine.core.kv.test_checkpoints import ANSWER, CHANCE, KINDS, Chat, ask, words
from tests.engine.driver import Driver, bytes_of

ROOM = 10**6
LONG = words(1, 3 * WORTH_WRITING)
TRIMS = {"can_trim": True, "windowed": False}


def driven(
    kind: dict[str, bool] = TRIMS, *, slots: int = 2, context: int = COPIED_AT_ONCE, store: int = ROOM
) -> Driver:
    rewinds = kind.get("rewinds", True)
    traits = {name: on for name, on in kind.items() if name != "rewinds"}
    return Driver(FakeModel(slots=slots, context=context, **traits), store_budget=store, rewinds=rewinds, on_disk=True)


def restarted(old: Driver) -> Driver:
    """Return an engine that has only the files of another one, which was killed."""
    runner = FakeRunner(old.model, rewinds=old.rewinds)
    runner.cache.files.tokens, runner.cache.files.known = old.run.cache.files.tokens, old.run.cache.files.known
    runner.cache.files.computed_by = old.run.cache.files.computed_by
    return Driver(old.model, runner, store_budget=old.store_budget, rewinds=old.rewinds, on_disk=True)


def computed(driver: Driver, prompt: str) -> int:
    """Return the number of prompt tokens computed for a prompt."""
    before = driver.scheduler.metrics().computed_prompt_tokens
    key = driver.serve(prompt, max_tokens=1)
    assert isinstance(driver.last(key), Finished)
    return driver.scheduler.metrics().computed_prompt_tokens - before


def until_idle(driver: Driver) -> None:
    """Step as long as the step loop would. Reads do not end meanwhile."""
    while driver.scheduler.busy:
        driver.step()


@pytest.mark.parametrize("kind", [TRIMS, *KINDS.values()], ids=["trims", *KINDS])
def test_after_a_restart_a_turn_computes_only_what_is_new(kind: dict[str, bool]) -> None:
    driver, chat = driven(kind), Chat(system=words(0, 2 * WORTH_WRITING))
    for turn in range(2):
        chat.messages.append(words(10 + turn))
        answer, _ = ask(driver, chat)
        chat.messages.append(answer)
    driver = restarted(driver)
    chat.messages.append(words(20))
    answer, count = ask(driver, chat)
    assert count <= 100 + 2 * (ANSWER + 100) + 2  # a turn or two that added too little to be written again
    fresh = Driver(driver.model, store_budget=0, rewinds=driver.rewinds)
    assert ask(fresh, chat)[0] == answer


@pytest.mark.parametrize("kind", [TRIMS, *KINDS.values()], ids=["trims", *KINDS])
def test_after_a_restart_another_chat_reuses_the_system_prompt(kind: dict[str, bool]) -> None:
    driver = driven(kind)
    ask(driver, Chat(words(0, 2 * WORTH_WRITING), [words(10)]))
    _, count = ask(restarted(driver), Chat(words(0, 2 * WORTH_WRITING), [words(11)]))
    assert count <= 100 + 1 + CHANCE


def test_requests_with_the_same_beginning_wait_for_one_read() -> None:
    driver = driven()
    computed(driver, LONG)
    driver = restarted(driver)
    for letter in "xy":
        driver.add(LONG + letter * 20, max_tokens=1)
    until_idle(driver)
    assert len(driver.run.cache.files.reports) == 1  # both wait, and the loop sleeps
    driver.drain()
    assert driver.scheduler.metrics().computed_prompt_tokens == 2 * 20


def test_others_go_on_while_one_waits_for_a_read() -> None:
    driver = driven()
    computed(driver, LONG)
    driver = restarted(driver)
    waits = driver.add(LONG, max_tokens=1)
    runs = driver.add("short", max_tokens=3)
    until_idle(driver)
    assert isinstance(driver.last(runs), Finished)
    assert not isinstance(driver.last(waits), Finished)
    driver.drain()
    assert isinstance(driver.last(waits), Finished)


def test_a_request_that_comes_during_a_read_does_not_wait_for_it() -> None:
    driver = driven()
    computed(driver, LONG)
    driver = restarted(driver)
    driver.add(LONG, max_tokens=1)
    until_idle(driver)
    comes = driver.add("short", max_tokens=1)
    until_idle(driver)
    assert isinstance(driver.last(comes), Finished)


def test_a_request_that_starts_after_copies_does_not_wait_for_the_read_of_another_one() -> None:
    driver = driven(context=2 * COPIED_AT_ONCE)
    computed(driver, LONG)
    driver = restarted(driver)
    for seed in (2, 3):
        computed(driver, words(seed, COPIED_AT_ONCE))
    waits = driver.add(LONG, max_tokens=1)  # the cells in its slot are saved first, so that no other one starts yet
    starts = driver.add("short", max_tokens=1)
    until_idle(driver)
    assert not isinstance(driver.last(waits), Finished)
    assert isinstance(driver.last(starts), Finished)


def test_a_cancel_during_a_read_frees_the_slot_at_once() -> None:
    driver = driven(slots=1)
    computed(driver, LONG)
    driver = restarted(driver)
    waits = driver.add(LONG, max_tokens=1)
    driver.step()
    driver.cancel(waits)
    until_idle(driver)
    assert isinstance(driver.last(waits), Released)
    assert driver.scheduler.metrics().free == 1
    driver.deliver()  # the read ends later, and its cells serve the next request
    assert computed(driver, LONG) == 1


@pytest.mark.parametrize("lost", [True, False], ids=["removed", "unreadable"])
def test_a_prompt_whose_file_cannot_be_read_is_computed(lost: bool) -> None:
    driver = driven()
    computed(driver, LONG)
    driver = restarted(driver)
    if lost:
        driver.run.cache.files.tokens.clear()
    driver.run.cache.files.fails = not lost
    assert computed(driver, LONG) == len(LONG)
    assert driver.scheduler.metrics().stored_tokens == 0


def test_failed_writes_are_tried_again_with_the_next_request() -> None:
    driver = driven()
    driver.run.cache.files.fails = True
    computed(driver, LONG)
    driver.run.cache.files.fails = False
    computed(driver, "other")
    assert computed(restarted(driver), LONG) == 1


def test_cells_are_written_when_their_slot_is_overwritten_by_a_busy_engine() -> None:
    driver = driven(slots=2)
    driver.add("busy", max_tokens=2000)
    driver.step()
    driver.add(LONG, max_tokens=1)
    driver.add(words(5, 300), max_tokens=1)
    for _ in range(100):
        driver.step()
        driver.deliver()
    assert driver.scheduler.metrics().held
    assert [file.prefix.tokens[: len(LONG)] for file in driver.run.cache.files.known.values()] == [list(LONG.encode())]


def test_a_longer_prefix_replaces_the_file_of_a_shorter_one() -> None:
    driver = driven()
    computed(driver, LONG)
    (shorter,) = driver.run.cache.files.known
    computed(driver, LONG * 2)
    assert shorter not in driver.files
    assert [file.size for file in driver.run.cache.files.known.values()] == [len(LONG) * 2]


def test_a_conversation_is_written_again_only_after_it_has_grown() -> None:
    driver = driven()
    text = LONG
    for turn in range(40):
        text += words(turn, 60)
        computed(driver, text)
    assert driver.run.cache.files.written < (GROWTH + 2) * len(text)


def test_short_prompts_and_private_ones_are_not_written() -> None:
    driver = driven()
    computed(driver, words(0, WORTH_WRITING - 1))
    driver.serve(LONG, max_tokens=1, cache_prompt=False)
    assert not driver.run.cache.files.tokens


def test_partitions_share_no_file_and_their_names_are_hashed() -> None:
    driver = driven()
    driver.serve(LONG, max_tokens=1, cache_partition="secret")
    [file] = driver.run.cache.files.known.values()
    assert "secret" not in file.name
    assert "secret" not in str(file.prefix.partition)
    assert computed(restarted(driver), LONG) == len(LONG)


def test_without_room_in_host_memory_no_file_is_read() -> None:
    driver = driven(store=bytes_of(WORTH_WRITING))
    computed(driver, LONG)
    assert computed(restarted(driver), LONG) == len(LONG)


def test_a_file_that_was_removed_for_others_is_not_read() -> None:
    driver = driven()
    driver.run.cache.files.room = 4 * WORTH_WRITING
    first, second = words(0, 3 * WORTH_WRITING), words(1, 3 * WORTH_WRITING)
    computed(driver, first)
    (name,) = driver.run.cache.files.known
    assert name in driver.files
    computed(driver, second)
    assert name not in driver.files


def file(tokens: int) -> PrefixFile:
    return file_for(Prefix(list(range(tokens)), tokens, ""), bytes_of(tokens))


def test_a_prefix_longer_than_a_slot_is_neither_used_nor_written() -> None:
    files = PrefixFiles(300, can_trim=True)
    files.add(file(301))
    assert list(files.find(file(301).prefix)) == []
    assert not files.is_worth_writing(file(301).prefix), "it would be written again and again"
    assert files.is_worth_writing(file(300).prefix)


@pytest.mark.parametrize("kind", [TRIMS, *KINDS.values()], ids=["trims", *KINDS])
def test_an_idle_engine_does_not_write_slots_in_turns_where_the_disk_has_no_room(kind: dict[str, bool]) -> None:
    driver = driven(kind, slots=3)
    driver.run.cache.files.room = 4 * WORTH_WRITING
    for seed in range(3):
        computed(driver, words(seed, 3 * WORTH_WRITING))
    written = driver.run.cache.files.written
    assert written < 3 * 3 * 4 * WORTH_WRITING
    computed(driver, words(3, 3 * WORTH_WRITING))
    assert driver.run.cache.files.written > written, "the next request is written"


def test_an_idle_engine_writes_one_prefix_after_another() -> None:
    driver = driven()
    for at in range(2):
        driver.add(words(at, 2 * WORTH_WRITING), max_tokens=1)
    written = []
    until_idle(driver)
    for _ in range(3):
        driver.step()
        driver.step()
        written.append(len(driver.run.cache.files.reports))
        driver.deliver()
    assert written == [1, 1, 0]


def test_a_file_is_read_if_that_takes_less_time_than_computing() -> None:
    files = PrefixFiles(1000, can_trim=True)
    assert files.is_worth_reading(10**9, WORTH_READING)
    assert not files.is_worth_reading(1, WORTH_READING - 1)
    files.observe_prompt(100, 1.0)
    files.observe_read(10**6, 1.0)
    assert files.is_worth_reading(4 * 10**6, 500)
    assert not files.is_worth_reading(6 * 10**6, 500)


def test_names_depend_on_tokens_partition_and_kind() -> None:
    one = Prefix([1, 2], 2, "")
    others = [Prefix([1, 3], 2, ""), Prefix([1, 2], 2, "a"), Prefix([1, 2, 3], 3, "")]
    names = {file_for(prefix, 0).name for prefix in [one, *others]} | {file_for(one, 0, partial=True).name}
    assert len(names) == 5
    assert file_for(Prefix([1, 2, 3], 2, ""), 0).name == file_for(one, 0).name


def test_cells_of_a_shared_pool_are_freed_for_a_prefix_that_was_read() -> None:
    model = FakeModel(slots=2, context=1000, pool=1000)
    driver = Driver(model, store_budget=ROOM, on_disk=True)
    computed(driver, LONG)
    driver = restarted(driver)
    computed(driver, words(2, 600))
    assert computed(driver, LONG) == 1


def test_a_file_is_not_read_for_few_tokens_more_than_memory_holds() -> None:
    driver = driven()
    computed(driver, LONG)
    driver = restarted(driver)
    few = WORTH_READING - 1
    for tokens in (few, 2 * few):
        assert computed(driver, LONG[:tokens]) == few
    assert driver.scheduler.metrics().stored_tokens == 0


def test_files_of_other_adapters_are_not_read() -> None:
    driver = driven()
    driver.serve(LONG, max_tokens=1, adapters=((0, 1.0),))
    driver = restarted(driver)
    assert computed(driver, LONG) > len(LONG) - 2
    driver.add(LONG, max_tokens=1, adapters=((0, 1.0),))
    before = driver.scheduler.metrics().computed_prompt_tokens
    driver.drain()
    assert driver.scheduler.metrics().computed_prompt_tokens - before == 1


@pytest.mark.parametrize(("cells_per_token", "read"), [(64, True), (0.5, False)])
def test_a_file_is_not_read_where_a_copy_takes_longer(cells_per_token: float, *, read: bool) -> None:
    first = driven()
    computed(first, LONG)
    first.model.traits = replace(first.model.traits, cells_per_token=cells_per_token)
    assert (computed(restarted(first), LONG) < len(LONG)) == read
