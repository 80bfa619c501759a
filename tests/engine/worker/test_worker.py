"""A whole engine on two pipes with the fake runner: its messages, and their order relative to passes."""

import logging
import threading
from dataclasses import replace
from typing import Any

import pytest

from engine.core.kv.cell_changes import Removal
from engine.core.kv.prefix_store import PrefixStore
from engine.core.step import StepPlan
from engine.errors import EngineFault, LoadError
from engine.events import Finished, Released, Started, Text
from engine.info import HeldPrefix
from engine.protocol.messages import (
    Accepted,
    Answered,
    Ask,
    Cancel,
    Generate,
    HeldPrefixes,
    Inspect,
    InspectPrefixes,
    InspectQueue,
    LoadFailed,
    QueueOrder,
    Refused,
    SetLogLevel,
)
from engine.testing.fake_model import FakeModel
from engine.worker.loaded import LoadedModel
from engine.worker.worker import EXIT_FAULT, EXIT_LOAD_FAILED
from tests.engine.driver import bytes_of, request
from tests.engine.worker.worker_client import GUARD, Client, Gate, slow_tokenizer


@pytest.mark.usefixtures("root_level")
def test_the_log_level_changes_while_it_runs(client: Client) -> None:
    for level in ("debug", "error"):
        client.worker.receive(SetLogLevel(level))
        assert logging.getLogger().level == logging.getLevelName(level.upper())


def test_a_request_is_accepted_with_its_size_before_any_other_event(client: Client) -> None:
    client.generate(1, "four", "fivefive", n=3, max_tokens=2)
    assert client.expect(Accepted) == Accepted(1, (4, 8))
    assert isinstance(client.event(1, Started, Finished), Started)
    assert {client.event(1, Finished).choice for _ in range(6)} == set(range(6))


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"prompts": ("",)}, "prompt", "empty_prompt"),
        ({"prompts": ((),)}, "prompt", "empty_prompt"),
        ({"prompts": ((1, -1),)}, "prompt", "token_out_of_range"),
        ({"prompts": ((1, 260),)}, "prompt", "token_out_of_range"),
        ({"prompts": ("x" * 512,)}, "prompt", "context_length_exceeded"),
        ({"prompts": ("x" * 511,), "max_tokens": 2}, "max_tokens", "context_length_exceeded"),
        ({"prompts": ("fits", "x" * 600)}, "prompt", "context_length_exceeded"),
    ],
)
def test_a_request_that_can_never_run_is_refused_at_once(
    client: Client, fields: dict[str, Any], param: str, code: str
) -> None:
    asked = request(**{"max_tokens": 1, **{k: v for k, v in fields.items() if k != "prompts"}})
    prompts = fields["prompts"]
    client.worker.receive(Generate(1, type(asked)(id="x", prompts=prompts, max_tokens=asked.max_tokens)))
    refused = client.expect(Refused)
    fault = refused.fault
    assert (refused.key, fault.kind, fault.param, fault.code) == (1, "RequestError", param, code)
    figures = {"n_prompt_tokens": max(map(len, prompts)), "n_ctx": 512} if code == "context_length_exceeded" else {}
    assert fault.figures == figures
    assert client.inspect().metrics.steps == 0


def test_a_prompt_that_just_fits_is_served_to_its_last_token(client: Client) -> None:
    client.generate(1, "x" * 511, max_tokens=1)
    assert client.event(1, Finished).tokens == 1
    client.generate(2, "x" * 500, max_tokens=None)
    assert client.event(2, Finished).tokens == 12


def test_slots_are_reported_while_a_pass_runs(client: Client, gate: Gate) -> None:
    client.generate(1, "hello")
    gate.wait()
    inspected = client.inspect()
    assert [slot.state for slot in inspected.slots] == ["prefill", "idle", "idle", "idle"]
    assert inspected.slots[0].request_id == "test"
    assert inspected.metrics.held == 1


def test_the_queue_is_reported_while_a_pass_runs(client: Client, gate: Gate) -> None:
    for key in range(1, 4):
        client.generate(key, "hello")
        client.expect(Accepted)
        if key == 1:
            gate.wait()
    client.ask(1, InspectQueue())
    assert client.expect(Answered) == Answered(1, QueueOrder((2, 3)))


def test_as_many_held_prefixes_are_reported_as_are_asked_for(client: Client) -> None:
    for key in (1, 2):
        client.generate(key, f"{key}" * 9, max_tokens=1, label=key)
        client.event(key, Finished)
    held = HeldPrefix(2, 0, 9), HeldPrefix(1, 0, 9)
    for most in (1, 9):
        client.ask(most, InspectPrefixes(most))
        assert client.expect(Answered) == Answered(most, HeldPrefixes(held[:most]))


def test_a_cancel_aborts_the_pass_of_a_lone_request(client: Client, gate: Gate) -> None:
    client.generate(1, "hello")
    gate.wait()
    assert client.cancel(1) == Released("prefill", 0, 0)
    inspected = client.inspect().metrics
    assert (inspected.aborted, inspected.free, inspected.active_tokens) == (1, 4, 0)


def test_a_cancel_beside_a_neighbour_waits_for_the_pass_and_no_longer(client: Client, gate: Gate) -> None:
    client.generate(1, "stays", max_tokens=9)
    gate.wait()
    client.generate(2, "goes", max_tokens=50)
    client.expect(Accepted, lambda accepted: accepted.key == 2)
    gate.let_through()
    gate.wait()
    while len(client.runner.passes[-1]) < 2:
        gate.let_through()
        gate.wait()
    client.worker.receive(Cancel(2))
    passes = len(client.runner.passes)
    gate.open()
    assert client.event(2, Released).phase in {"prefill", "decode"}
    client.event(1, Finished)
    assert all(seq_id == 0 for made in client.runner.passes[passes:] for seq_id, _ in made)
    assert client.inspect().metrics.active_tokens == 0


def test_a_cancel_heard_between_plan_and_pass_has_no_row_in_it(client: Client) -> None:
    gate = Gate(client.runner)
    for key in (1, 2, 3):
        client.generate(key, "hello", max_tokens=100, cache_prompt=False)
        client.expect(Accepted)
        gate.wait() if key == 1 else None
    while len(client.runner.passes[-1]) < 3:
        gate.let_through()
        gate.wait()
    remove = client.runner.cache.remove

    def hear_another(removal: Removal) -> None:
        client.runner.cache.remove = remove  # type: ignore[method-assign]
        remove(removal)
        client.worker.receive(Cancel(2))

    client.runner.cache.remove = hear_another  # type: ignore[method-assign]
    passes = len(client.runner.passes)
    client.worker.receive(Cancel(3))
    gate.open()
    client.event(3, Released)
    client.event(2, Released)
    client.cancel(1)
    assert all(len(made) == 1 for made in client.runner.passes[passes:])


def test_a_cancel_of_a_waiting_request_is_answered_during_the_pass(client: Client, gate: Gate) -> None:
    for key in range(1, 6):
        client.generate(key, "hello")
        client.expect(Accepted)
        if key == 1:
            gate.wait()
    assert client.cancel(5) == Released("queued", 0, 0)
    assert client.runner.passes == [[(0, 5)]]


def test_a_cancel_while_the_prompt_is_tokenised_leaves_no_request(client: Client) -> None:
    begun, go_on = slow_tokenizer(client.model)
    client.generate(1, "slow")
    assert begun.wait(GUARD)
    assert client.cancel(1) == Released("intake", 0, 0)
    client.generate(2, "next")
    assert client.cancel(2) == Released("intake", 0, 0)
    client.generate(3, "last", max_tokens=1)
    go_on.set()
    client.event(3, Finished)
    assert client.runner.passes == [[(0, 4)]]


@pytest.mark.parametrize("message", [Cancel(1), Ask(1, Inspect())], ids=type)
def test_metrics_beside_those_of_steps_come_in_their_order(client: Client, message: Cancel | Ask) -> None:
    begun, go_on = slow_tokenizer(client.model)
    client.generate(1, "slow")
    assert begun.wait(GUARD)
    frames = client.frames
    other = threading.Thread(target=client.worker.receive, args=(message,))
    assert client.worker._serving is not None
    with client.worker._serving.loop._publishing:  # as a thread that has metrics and does not publish them yet
        other.start()
        other.join(0.1)
        assert client.frames == frames
    other.join()
    assert client.frames > frames
    go_on.set()


def test_every_cancel_is_answered_once_even_for_an_unknown_key(client: Client) -> None:
    assert client.cancel(77) == Released("gone", 0, 0)


def test_a_second_cancel_and_one_after_the_end_are_answered(client: Client) -> None:
    client.generate(1, "hello", max_tokens=1)
    client.event(1, Finished)
    assert [client.cancel(1), client.cancel(1)] == [Released("gone", 0, 0)] * 2


def test_an_idle_engine_makes_no_pass_and_writes_no_frame(client: Client) -> None:
    client.generate(1, "hello", max_tokens=2)
    client.event(1, Finished)
    before = client.inspect().metrics
    frames = client.frames
    after = client.inspect().metrics
    assert (after, client.frames) == (before, frames + 1)


def test_equal_requests_cost_equal_steps_frames_and_bytes(client: Client) -> None:
    costs = set()
    for key in range(100, 200):
        before = client.inspect().metrics, client.frames, client.bytes
        client.generate(key, "the same", max_tokens=5, cache_prompt=False, stream=True)
        client.event(key, Finished)
        while (after := client.inspect().metrics).cached_tokens or after.held:
            pass
        costs.add((after.steps - before[0].steps, after.prompt_tokens - before[0].prompt_tokens))
    assert len(costs) == 1


def test_a_streaming_request_gets_an_event_per_token_and_another_only_its_end(client: Client) -> None:
    client.generate(1, "hello", max_tokens=3, stream=True)
    assert [type(client.event(1, Text, Finished)) for _ in range(3)] == [Text, Text, Finished]
    client.generate(2, "hello", max_tokens=3)
    finished = client.event(2, Text, Finished)
    assert isinstance(finished, Finished)
    assert len(finished.text) == 3


@pytest.mark.parametrize(("room", "cached"), [(1000, 299), (0, 0)])
def test_a_prefix_outlives_its_slot_where_there_is_memory_to_save_it(room: int, cached: int) -> None:
    class Storing(Client):
        def load(self, *arguments: Any) -> LoadedModel:
            return replace(super().load(*arguments), store=PrefixStore(10**6, bytes_of))

    client = Storing(model=FakeModel(slots=1)).loaded()
    client.runner.cache.room = room
    for key, prompt in enumerate(("x" * 300, "y" * 300, "x" * 300)):
        client.generate(key, prompt, max_tokens=1)
        finished = client.event(key, Finished)
    assert finished.cached == cached
    metrics = client.inspect().metrics
    assert (metrics.restored_tokens, metrics.stored_tokens > 0) == (cached, room > 0)
    client.worker.stop()


def test_a_failing_runner_ends_the_process_with_a_message(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_plan: StepPlan) -> None:
        raise EngineFault("decode failed")

    client.runner.on_pass = fail
    client.generate(1, "hello")
    assert client.exits.get(timeout=GUARD) == EXIT_FAULT
    assert "decode failed" in caplog.text
    assert client.freed_at_exit is False, "other threads may still use the model"


def test_a_load_error_is_reported_and_ends_the_process() -> None:
    class Broken(Client):
        def load(self, *_args: Any) -> Any:
            raise LoadError("no such file")

    broken = Broken()
    assert broken.expect(LoadFailed).message == "no such file"
    assert broken.exits.get(timeout=GUARD) == EXIT_LOAD_FAILED


def test_a_closed_gateway_pipe_ends_the_process_in_the_middle_of_a_pass(gate: Gate, client: Client) -> None:
    client.generate(1, "hello", max_tokens=100)
    gate.wait()
    client.worker.stop()
    assert client.closed.is_set()
