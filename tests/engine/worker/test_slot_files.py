"""Slots in files: saved, restored into any slot, hit by the next request, and erased."""

import errno
import os
import queue
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.core.kv.cell_changes import Removal
from engine.errors import EngineFault, RequestError
from engine.events import Finished
from engine.protocol.fault import Fault
from engine.protocol.messages import Answered, Ask, CancelQuery, FromEngine, KeepSlot, QueryFailed, SlotKept, Step
from engine.request import SlotAction
from engine.testing.fake_model import FakeModel
from engine.worker import slot_files
from engine.worker.loop import StepLoop
from engine.worker.progress import Progress
from engine.worker.slot_files import SlotFiles
from engine.worker.worker import EXIT_FAULT
from tests.engine.worker.worker_client import GUARD, Client, Gate
from tests.threads import refuse_thread

PROMPT = "a common beginning of twenty-six"
SAVE, RESTORE, ERASE = SlotAction.SAVE, SlotAction.RESTORE, SlotAction.ERASE


def generated(client: Client, key: int, prompt: str = PROMPT, **fields: object) -> Finished:
    client.generate(key, prompt, **fields)
    finished: Finished = client.event(key, Finished)
    return finished


def ask(client: Client, query: KeepSlot, query_id: int = 1) -> None:
    client.worker.receive(Ask(query_id, query))


def kept(client: Client, action: SlotAction, slot: int, file: Path | str = "", **fields: Any) -> SlotKept:
    ask(client, KeepSlot(action, slot, str(file), **fields))
    answer = client.expect(Answered).answer
    assert isinstance(answer, SlotKept)
    return answer


def failed(client: Client, action: SlotAction, slot: int, file: Path | str = "", **fields: Any) -> Fault:
    ask(client, KeepSlot(action, slot, str(file), **fields))
    return client.expect(QueryFailed).fault


def test_a_request_gets_the_slot_that_it_names(client: Client) -> None:
    assert generated(client, 1, slot=2).slot == 2
    assert generated(client, 2, slot=99).slot == 2, "there is no such slot"
    assert generated(client, 3, slot=2, cache_prompt=False).slot == 2


@pytest.mark.parametrize("model", [FakeModel(), FakeModel(pool=600), FakeModel(windowed=True)])
def test_a_restored_slot_is_hit_by_the_next_request(model: FakeModel, tmp_path: Path) -> None:
    file = tmp_path / "slot"
    client = Client(model=model).loaded()
    end = generated(client, 1, slot=1)
    size = len(PROMPT) + end.tokens - 1
    assert kept(client, SAVE, 1, file) == SlotKept(size, file.stat().st_size)
    assert [path.name for path in tmp_path.iterdir()] == ["slot"]
    assert kept(client, ERASE, 1) == SlotKept(size, 0)
    assert generated(client, 2, slot=1).cached == 0
    assert kept(client, ERASE, 1).tokens == size
    assert kept(client, RESTORE, 0, file) == SlotKept(size, file.stat().st_size)
    again = generated(client, 3, PROMPT + end.text[: end.tokens - 1] + "!")
    assert again.cached == size
    client.worker.stop()


def test_an_idle_engine_reports_the_cells_that_are_left(client: Client) -> None:
    generated(client, 1, "hello", slot=0)
    end = generated(client, 2, slot=1)
    kept(client, ERASE, 0)
    client.expect(Step, lambda step: step.metrics.cached_tokens == len(PROMPT) + end.tokens - 1)


def test_a_file_of_another_engine_process_is_restored(tmp_path: Path) -> None:
    file = tmp_path / "slot"
    first = Client().loaded()
    size = len(PROMPT) + generated(first, 1, slot=0).tokens - 1
    kept(first, SAVE, 0, file)
    first.worker.stop()
    second = Client().loaded()
    assert kept(second, RESTORE, 3, file).tokens == size
    assert generated(second, 1).cached == len(PROMPT) - 1
    second.worker.stop()


def test_a_lack_of_threads_fails_only_the_query(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse_thread)
        assert failed(client, ERASE, 0).code == "engine_failed"
    assert kept(client, ERASE, 0).tokens == 0


def test_an_empty_slot_has_an_empty_file(client: Client, tmp_path: Path) -> None:
    assert kept(client, SAVE, 0, tmp_path / "empty").tokens == 0
    assert kept(client, RESTORE, 1, tmp_path / "empty").tokens == 0
    assert kept(client, ERASE, 1).tokens == 0


def test_a_file_is_private_to_the_user(client: Client, tmp_path: Path) -> None:
    kept(client, SAVE, 0, tmp_path / "saved")
    assert (tmp_path / "saved").stat().st_mode & 0o777 == 0o600


def test_what_a_killed_engine_has_left_is_removed_by_a_later_save(client: Client, tmp_path: Path) -> None:
    abandoned, young = (tmp_path / f".{digit * 32}.part" for digit in "0f")
    others = [tmp_path / name for name in ("old.part", ".part", f".{'0' * 31}.part", f"{'0' * 32}.part")]
    for path in (abandoned, young, *others):
        path.write_bytes(b"x")
        if path != young:
            os.utime(path, (0, 0))
    kept(client, SAVE, 0, tmp_path / "slot")
    assert set(tmp_path.iterdir()) == {young, *others, tmp_path / "slot"}


def test_a_file_may_have_the_longest_name(client: Client, tmp_path: Path) -> None:
    longest = tmp_path / ("a" * 255)
    assert kept(client, SAVE, 0, longest).bytes == longest.stat().st_size
    assert [*tmp_path.iterdir()] == [longest]


def test_no_changed_file_reaches_the_cells(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generated(client, 1, slot=0)
    kept(client, SAVE, 0, tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    monkeypatch.setattr(client.runner.cache, "write", None)
    for at in range(len(good)):
        (tmp_path / "changed").write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        (tmp_path / "cut").write_bytes(good[:at])
        for name in ("changed", "cut"):
            assert failed(client, RESTORE, 1, tmp_path / name).code == "invalid_file"


def test_the_file_of_another_model_does_not_reach_the_cells(tmp_path: Path) -> None:
    one, other = Client().loaded(), Client(fingerprint=b"other").loaded()
    generated(one, 1, slot=0)
    kept(one, SAVE, 0, tmp_path / "slot")
    assert failed(other, RESTORE, 0, tmp_path / "slot").code == "invalid_file"
    kept(one, RESTORE, 0, tmp_path / "slot")
    for client in (one, other):
        client.worker.stop()


def test_wrong_files_are_refused_and_the_engine_goes_on(client: Client, tmp_path: Path) -> None:
    generated(client, 1, slot=0)
    kept(client, SAVE, 0, tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    for name, data in (("empty", b""), ("text", b"hello"), ("zeros", bytes(99)), ("more", good + b"!")):
        (tmp_path / name).write_bytes(data)
        assert failed(client, RESTORE, 1, tmp_path / name).code == "invalid_file"
    os.mkfifo(tmp_path / "pipe")
    assert failed(client, RESTORE, 1, tmp_path / "pipe").code == "file_error"
    assert failed(client, RESTORE, 1, tmp_path / "missing").code == "file_error"
    assert failed(client, SAVE, 0, tmp_path / "missing" / "file").code == "file_error"
    assert failed(client, SAVE, 0, tmp_path / ("a" * 256)).code == "file_error"
    (tmp_path / "folder").mkdir()
    assert failed(client, SAVE, 0, tmp_path / "folder").code == "file_error"
    assert not [*tmp_path.glob(".*")]
    assert failed(client, ERASE, 99).code == "invalid_value"
    assert generated(client, 2).cached == len(PROMPT) - 1


def test_a_file_system_that_fails_is_not_the_fault_of_the_request(client: Client, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for failure in (failed(client, SAVE, 0, loop / "file"), failed(client, RESTORE, 0, loop)):
        assert (failure.kind, failure.code, failure.param) == ("EngineFault", "file_failed", None)
        assert os.strerror(errno.ELOOP) in failure.message


def test_a_slot_belongs_to_the_partition_of_its_prompt(client: Client, tmp_path: Path) -> None:
    generated(client, 1, slot=0, cache_partition="mine")
    assert failed(client, SAVE, 0, tmp_path / "slot").code == "foreign_slot"
    assert failed(client, ERASE, 0, partition="other").code == "foreign_slot"
    kept(client, SAVE, 0, tmp_path / "slot", partition="mine")
    kept(client, ERASE, 0, partition="mine")
    kept(client, RESTORE, 0, tmp_path / "slot", partition="other")
    assert generated(client, 2, cache_partition="mine").cached == 0
    assert generated(client, 3, cache_partition="other").cached == len(PROMPT) - 1


def test_a_slot_belongs_to_the_adapters_of_its_prompt(client: Client, tmp_path: Path) -> None:
    adapters = ((0, 0.5),)
    generated(client, 1, slot=0, adapters=adapters)
    for others in ((), ((0, 1.0),)):
        assert failed(client, SAVE, 0, tmp_path / "slot", adapters=others).code == "foreign_slot"
    saved = kept(client, SAVE, 0, tmp_path / "slot", adapters=adapters)
    assert kept(client, ERASE, 0, adapters=adapters).tokens == saved.tokens
    assert kept(client, RESTORE, 1, tmp_path / "slot", adapters=adapters) == saved
    assert generated(client, 2).cached == 0
    assert generated(client, 3, adapters=adapters).cached == len(PROMPT) - 1


def test_work_waits_for_the_slot_and_can_be_cancelled(client: Client, gate: Gate, tmp_path: Path) -> None:
    client.generate(1, PROMPT, slot=0, max_tokens=50)
    gate.wait()
    ask(client, KeepSlot(SAVE, 0, str(tmp_path / "cancelled")), 5)
    ask(client, KeepSlot(ERASE, 0), 7)
    for query_id in (5, 7):
        client.worker.receive(CancelQuery(query_id))
    ask(client, KeepSlot(SAVE, 0, str(tmp_path / "slot")), 6)
    gate.open()
    client.event(1, Finished)
    answer = client.expect(Answered)
    assert answer.query_id == 6
    assert isinstance(answer.answer, SlotKept)
    assert answer.answer.tokens > 0, "nor is the slot erased"
    assert not (tmp_path / "cancelled").exists()


def test_the_cells_of_a_slot_are_in_memory_once_however_many_save_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated(client, 1, slot=0)
    reads, read = queue.SimpleQueue[int](), client.runner.cache.read
    writes, may_write, write = queue.SimpleQueue[None](), threading.Event(), slot_files.write_state

    def read_counted(seq_id: int) -> bytes:
        reads.put(seq_id)
        return read(seq_id)

    def write_slowly(*args: Any) -> int:
        writes.put(None)
        may_write.wait(GUARD)
        return write(*args)

    monkeypatch.setattr(client.runner.cache, "read", read_counted)
    monkeypatch.setattr(slot_files, "write_state", write_slowly)
    for query_id in range(5, 10):
        ask(client, KeepSlot(SAVE, 0, str(tmp_path / "slot")), query_id)
    writes.get(timeout=GUARD)
    for _ in range(5):
        assert kept(client, ERASE, 1).tokens == 0, "another slot does not wait"
    assert reads.qsize() == 1
    may_write.set()
    assert {client.expect(Answered).query_id for _ in range(5)} == set(range(5, 10))


@pytest.mark.parametrize("saves", [True, False])
def test_a_cancel_during_the_work_leaves_the_engine_as_it_is(client: Client, tmp_path: Path, saves: bool) -> None:
    generated(client, 1, slot=0)
    read, cancelled = client.runner.cache.read, threading.Event()

    def read_cancelled(seq_id: int) -> bytes:
        client.worker.receive(CancelQuery(5))
        cancelled.set()
        if saves:
            return read(seq_id)
        raise RequestError("no cells", code="file_error", param="filename")

    client.runner.cache.read = read_cancelled  # type: ignore[method-assign]
    ask(client, KeepSlot(SAVE, 0, str(tmp_path / "cancelled")), 5)
    assert cancelled.wait(GUARD)  # the next query has a thread of its own
    assert kept(client, ERASE, 0).tokens > 0
    assert generated(client, 2).cached == 0
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("action", [SAVE, RESTORE])
def test_cells_without_memory_fail_their_query_alone(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: SlotAction
) -> None:
    def raise_memory_error(*_: object) -> bytes:
        raise MemoryError

    generated(client, 1, slot=0)
    kept(client, SAVE, 0, tmp_path / "slot")
    monkeypatch.setattr(client.runner.cache, "read", raise_memory_error)
    monkeypatch.setattr("engine.worker.slot_files._digest", raise_memory_error)
    assert failed(client, action, 0, tmp_path / "slot").code == "engine_failed"
    assert generated(client, 2).cached == len(PROMPT) - 1


@pytest.mark.parametrize("failure", [MemoryError(), EngineFault("llama.cpp refuses")])
def test_a_change_of_cells_that_fails_for_a_query_ends_the_process(
    client: Client, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(_removal: Removal) -> None:
        raise failure

    generated(client, 1, slot=0)
    monkeypatch.setattr(client.runner.cache, "remove", fail)
    ask(client, KeepSlot(ERASE, 0))
    assert client.exits.get(timeout=GUARD) == EXIT_FAULT


def test_the_id_of_an_answered_query_may_be_used_again_at_once() -> None:
    replies: queue.SimpleQueue[FromEngine] = queue.SimpleQueue()

    left = iter([KeepSlot(ERASE, 0)])

    def write(reply: FromEngine) -> None:
        for query in left:
            files.submit(1, query)
        replies.put(reply)

    loop = StepLoop([], lambda _news, _metrics: None, Progress())
    files = SlotFiles(None, b"", loop, write)
    files.submit(1, KeepSlot(ERASE, 0))
    for _ in range(2):
        assert isinstance(replies.get(timeout=GUARD), QueryFailed)
    assert not files._waiting


def test_a_model_for_embeddings_has_no_slots() -> None:
    model = FakeModel()
    model.info = replace(model.info, generates=False)
    client = Client(model=model).loaded()
    assert failed(client, ERASE, 0).code == "unsupported_model"
    client.worker.stop()
