"""The runner on a real model: chunks, neighbours, aborts, faults, and freed memory."""

import errno
import logging
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import llama_cpp
import numpy as np
import pytest

from engine.config import EngineConfig
from engine.core.kv.cell_changes import Forget, Removal, Save
from engine.core.sequence import Sequence, State
from engine.core.step import SCORED_AT_ONCE, Chunk, Draw, DrawFailure, Outcome, StepPlan, StepResult
from engine.core.token import Token
from engine.errors import EngineFault, LoadError
from engine.llama import context, drawing, state
from engine.llama import runner as runners
from engine.llama.abort import AbortFlag
from engine.llama.batch import Batch
from engine.llama.cpu.step_threads import ThreadTuner
from engine.llama.memory.parameters import BATCH_ROWS
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.request import Grammar, GrammarKind, Sampling
from engine.sampling.truncation.draws import draw as truncated
from tests.architectures.models import family_model
from tests.c_calls import count_calls
from tests.engine.driver import running
from tests.models import model_path
from tests.repeat import thorough

SLOTS, CONTEXT = 3, 2048
SMALL = 256
"""Tokens of a context that a test fills."""
LONG = 1100
"""Tokens: several physical batches."""
GREEDY = Sampling(temperature=0.0)
WAIT = 20.0


def config(**fields: Any) -> EngineConfig:
    return EngineConfig(model=str(model_path()), **{"slots": SLOTS, "context": CONTEXT, "threads": 1, **fields})


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    with LlamaModel(config(), lambda _share: None) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def shared(model: LlamaModel) -> Iterator[LlamaRunner]:
    with LlamaRunner(model, config()) as made:
        yield made


@pytest.fixture
def runner(shared: LlamaRunner) -> LlamaRunner:
    """Return a runner without cells and without a pending abort."""
    for seq_id in range(SLOTS):
        shared.cache.remove(Removal(seq_id, 0))
    shared.arm()
    return shared


def prompt(length: int, start: int = 0) -> list[int]:
    return [(at * 7 + start) % 500 + 3 for at in range(length)]


def sequence(seq_id: int, tokens: list[int], sampling: Sampling = GREEDY, seed: int = 1, **fields: Any) -> Sequence:
    made = running(seq_id, tokens, sampling=sampling, **fields)
    made.seed = seed
    return made


def plan(*chunks: tuple[Sequence, int]) -> StepPlan:
    return StepPlan(tuple(Chunk(s, n, sample=n == s.pending) for s, n in chunks), decode=all(n == 1 for _, n in chunks))


def compute(runner: LlamaRunner, *chunks: tuple[Sequence, int]) -> list[Draw]:
    """Compute one pass and advance the sequences by its results."""
    wanted = plan(*chunks)
    result = runner.run(wanted)
    assert result.outcome is Outcome.DONE
    draws = [draw for (draw,) in result.draws]
    untaken = iter(draws)
    for chunk in wanted.chunks:
        chunk.sequence.computed += chunk.count
        if chunk.sample and isinstance(draw := next(untaken), Token):
            chunk.sequence.tokens.append(draw.id)
    return draws


def generate(runner: LlamaRunner, made: Sequence, count: int) -> list[int]:
    for _ in range(count):
        compute(runner, (made, made.pending))
    return made.tokens[made.prompt :]


def last_cell(runner: LlamaRunner, seq_id: int) -> int:
    """Return the highest position that has a cell; -1 for none."""
    return int(llama_cpp.llama_memory_seq_pos_max(runner._context._memory, seq_id))


@pytest.mark.parametrize("chunk", [1, 64, *(pytest.param(chunk, marks=thorough) for chunk in (511, 600))])
def test_a_long_prompt_in_chunks_is_the_prompt_at_once(runner: LlamaRunner, chunk: int) -> None:
    length = LONG if chunk > 1 else 40
    expected = generate(runner, sequence(0, prompt(length)), 8)
    chunked = sequence(1, prompt(length))
    while chunked.pending > chunk:
        compute(runner, (chunked, chunk))
    assert generate(runner, chunked, 8) == expected


def test_every_slot_draws_in_one_prompt_pass_of_unequal_chunks(runner: LlamaRunner) -> None:
    lengths = (700, 3, 90)
    alone = []
    for length in lengths:
        alone.append(generate(runner, sequence(1, prompt(length, length)), 6))
        runner.cache.remove(Removal(1, 0))
    together = [sequence(seq_id, prompt(length, length)) for seq_id, length in enumerate(lengths)]
    for _ in range(6):
        compute(runner, *((s, s.pending) for s in together))
    assert [s.tokens[s.prompt :] for s in together] == alone


@pytest.fixture(scope="module")
def flat(model: LlamaModel) -> Iterator[LlamaRunner]:
    """Return a runner whose rows cost by their own depth, as with flash attention."""
    with runner_with(model, shares_depth=False, aborts=True) as made:
        yield made


@pytest.fixture(scope="module")
def unstoppable(model: LlamaModel) -> Iterator[LlamaRunner]:
    """Return such a runner on a device that cannot abort a step."""
    with runner_with(model, shares_depth=False, aborts=False) as made:
        yield made


def runner_with(model: LlamaModel, *, shares_depth: bool, aborts: bool) -> LlamaRunner:
    attention = model.attention
    model.attention, model.aborts = replace(attention, shares_depth=shares_depth), aborts
    made = LlamaRunner(model, config())
    model.attention, model.aborts = attention, True
    return made


def test_a_step_is_computed_one_weight_pass_after_the_other_if_it_cannot_be_aborted_or_its_rows_share_their_depth(
    flat: LlamaRunner, unstoppable: LlamaRunner, runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = (40, 40, 7)
    drawn, counted = [], []
    for one in (flat, unstoppable, runner):
        for seq_id in range(len(lengths)):
            one.cache.remove(Removal(seq_id, 0))
        batches = record_batches(monkeypatch, one)
        together = [sequence(seq_id, prompt(length, length)) for seq_id, length in enumerate(lengths)]
        for _ in range(3):
            compute(one, *((s, s.pending) for s in together))
        compute(one, *((s, s.pending) for s in together[::2]))
        drawn.append([s.tokens for s in together])
        counted.append(batches)
    assert drawn[0] == drawn[1] == drawn[2]
    assert counted == [[87, 3, 3, 2], *[[80, 7, 3, 3, 1, 1]] * 2]


@pytest.mark.parametrize("full", [0, 1])
def test_only_the_first_weight_pass_may_find_no_room(
    unstoppable: LlamaRunner, monkeypatch: pytest.MonkeyPatch, full: int
) -> None:
    for seq_id in range(SLOTS):
        unstoppable.cache.remove(Removal(seq_id, 0))
    unstoppable.arm()
    outcomes = iter([Outcome.DONE] * full + [Outcome.NO_ROOM])
    decode = unstoppable._context.decode

    def limited(batch: Batch, *, abortable: bool) -> Outcome:
        outcome = next(outcomes)
        return decode(batch, abortable=abortable) if outcome is Outcome.DONE else outcome

    monkeypatch.setattr(unstoppable._context, "decode", limited)
    wanted = plan(*((s, s.pending) for s in (sequence(0, prompt(9)), sequence(1, prompt(5)))))
    with pytest.raises(EngineFault, match="finds no room") if full else nullcontext():
        assert unstoppable.run(wanted).outcome is Outcome.NO_ROOM


def test_an_abort_between_two_weight_passes_leaves_nothing_computed(
    unstoppable: LlamaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seq_id in range(SLOTS):
        unstoppable.cache.remove(Removal(seq_id, 0))
    batches = record_batches(monkeypatch, unstoppable, unstoppable.abort)
    together = [sequence(seq_id, prompt(length)) for seq_id, length in enumerate((40, 7, 9))]
    result = unstoppable.run(plan(*((s, s.pending) for s in together)))
    assert (result.outcome, result.draws, batches) == (Outcome.ABORTED, (), [40])
    assert [last_cell(unstoppable, seq_id) for seq_id in range(3)] == [-1] * 3
    unstoppable.arm()


@pytest.fixture
def bridging(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[LlamaRunner]:
    """Return a runner on a device where some idle rows take no time."""
    monkeypatch.setattr(model, "traits", replace(model.traits, idle_rows=2, idle_cells=SMALL))
    monkeypatch.setattr(model, "info", replace(model.info, context=SMALL))
    with runner_with(model, shares_depth=False, aborts=False) as made:
        yield made


@pytest.mark.parametrize("on_devices", [True, False])
def test_a_step_waits_for_devices(runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch, *, on_devices: bool) -> None:
    waits: list[int] = []
    monkeypatch.setattr(llama_cpp, "llama_synchronize", waits.append)
    monkeypatch.setattr(runner._context, "_on_devices", on_devices)
    compute(runner, (sequence(0, prompt(3)), 3))
    assert len(waits) == on_devices


def test_the_first_read_of_the_weights_does_not_count_in_the_choice_of_threads(
    runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(ThreadTuner, "observe", lambda _tuner, rows, _seconds, _cpu: counted.append(rows))
    runner.probe()
    assert not counted
    compute(runner, (sequence(0, prompt(3)), 3))
    assert counted == [3]


@pytest.mark.parametrize(("cells", "bridged"), [(0, True), (50, True), (SMALL - 1, True), (SMALL, False)])
def test_a_slot_between_two_rows_has_an_idle_row_if_there_is_room(
    bridging: LlamaRunner, runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch, cells: int, *, bridged: bool
) -> None:
    drawn = []
    for one in (runner, bridging):
        batches = record_batches(monkeypatch, one)
        between, rows = sequence(1, prompt(cells)), [sequence(seq_id, prompt(9, seq_id)) for seq_id in (0, 2)]
        if cells:
            compute(one, (between, cells))
        for _ in range(4):
            compute(one, *((row, row.pending) for row in rows))
        assert last_cell(one, 1) == cells - 1
        drawn.append([row.tokens for row in rows])
    assert drawn[0] == drawn[1]
    assert batches[-3:] == ([3, 3, 3] if bridged else [1, 1, 1])


@pytest.mark.parametrize(("idle_rows", "idle_cells"), [(0, SMALL), (2, 49)])
def test_idle_rows_are_few_and_in_slots_with_few_cells(
    model: LlamaModel, bridging: LlamaRunner, monkeypatch: pytest.MonkeyPatch, idle_rows: int, idle_cells: int
) -> None:
    monkeypatch.setattr(model, "traits", replace(model.traits, idle_rows=idle_rows, idle_cells=idle_cells))
    batches = record_batches(monkeypatch, bridging)
    compute(bridging, (sequence(1, prompt(50)), 50))
    compute(bridging, *((sequence(seq_id, prompt(1)), 1) for seq_id in (0, 2)))
    assert batches == [50, 1, 1]


@pytest.mark.parametrize(("draft", "rows"), [((1,), 2 * 3), ((1, 2, 3), 4 * 2)], ids=["few", "too many"])
def test_rows_with_drafts_have_as_many_idle_rows(
    bridging: LlamaRunner, monkeypatch: pytest.MonkeyPatch, draft: tuple[int, ...], rows: int
) -> None:
    batches = record_batches(monkeypatch, bridging)
    compute(bridging, (sequence(1, prompt(30)), 30))
    chunks = tuple(Chunk(sequence(seq_id, [3]), 1, sample=True, draft=draft) for seq_id in (0, 2))
    assert bridging.run(StepPlan(chunks, decode=True)).outcome is Outcome.DONE
    assert batches == [30, rows]
    assert last_cell(bridging, 1) == 30 - 1


def test_a_prompt_step_has_no_idle_rows(bridging: LlamaRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = record_batches(monkeypatch, bridging)
    chunks = tuple(Chunk(sequence(seq_id, [3]), 1, sample=True) for seq_id in (0, 2))
    assert bridging.run(StepPlan(chunks, decode=False)).outcome is Outcome.DONE
    assert batches == [1, 1]


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.NO_ROOM])
def test_a_failed_step_leaves_no_cell_of_an_idle_row(
    bridging: LlamaRunner, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    decode = bridging._context.decode

    def failing(batch: Batch, *, abortable: bool) -> Outcome:
        assert decode(batch, abortable=abortable) is Outcome.DONE
        return outcome

    monkeypatch.setattr(bridging._context, "decode", failing)
    rows = [sequence(seq_id, prompt(1, seq_id)) for seq_id in (0, 2)]
    assert bridging.run(plan(*((row, 1) for row in rows))).outcome is outcome
    assert last_cell(bridging, 1) == -1


def test_copies_are_measured_where_they_go_through_host_memory(
    model: LlamaModel, runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runner.probe().copies is None
    monkeypatch.setattr(model, "fully_offloaded", True)
    assert runner.probe().copies is None, "it can abort, so its memory is the host's"
    monkeypatch.setattr(model, "aborts", False)
    copies = runner.probe().copies
    assert copies
    assert all(0 < cells < math.inf for cells in copies)
    assert last_cell(runner, 0) == -1
    monkeypatch.setattr(model, "info", replace(model.info, context=model.attention.chunk))
    assert runner.probe().copies is None


@pytest.mark.parametrize(("cores", "draws", "steps"), [(16, 8, 4), (3, 2, 3), (1, 1, 1)])
def test_where_devices_compute_all_layers_most_threads_draw(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch, cores: int, draws: int, steps: int
) -> None:
    for module in (runners, context):
        monkeypatch.setattr(module, "usable_cores", lambda: cores)
    asked = EngineConfig(model="any")
    assert runners._draw_threads(model) == 1
    assert context._step_threads(asked, fully_offloaded=False).of(1).threads == cores
    monkeypatch.setattr(model, "fully_offloaded", True)
    assert runners._draw_threads(model) == draws
    assert context._step_threads(asked, fully_offloaded=True).of(1).threads == steps


def test_measured_copies_decide_over_moves_and_copies(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "traits", model.traits)
    model.use_copy_speed(2.5, 90.7)
    traits, chunk = model.traits, model.attention.chunk
    assert (traits.cells_per_token, traits.cells_per_weight_pass, traits.worth_copying) == (2.5, 90, chunk)


def record_batches(
    monkeypatch: pytest.MonkeyPatch, runner: LlamaRunner, then: Callable[[], None] = lambda: None
) -> list[int]:
    """Record the rows of each call to llama.cpp from now on, and do something after each."""
    rows: list[int] = []
    decode = runner._context.decode

    def recorded(batch: Batch, *, abortable: bool) -> Outcome:
        rows.append(batch.c.n_tokens)
        outcome = decode(batch, abortable=abortable)
        then()
        return outcome

    monkeypatch.setattr(runner._context, "decode", recorded)
    return rows


@pytest.mark.parametrize("cells", [1, 40, LONG])
def test_the_size_of_saved_cells_is_known_in_advance(runner: LlamaRunner, cells: int) -> None:
    size = runner.probe().whole
    compute(runner, (sequence(1, prompt(cells)), cells))
    assert runner.cache.save(Save(1, 1))
    assert runner.cache.saved[1].nbytes == size.of(cells)
    runner.cache.forget(Forget(1))
    assert not runner.cache.saved


def no_memory(*_arguments: object) -> None:
    raise OSError(errno.ENOMEM, "no memory")


@pytest.mark.parametrize(
    ("owner", "name", "fail"),
    [(state, "_allocate", no_memory), (llama_cpp, "llama_state_seq_get_data_ext", lambda *_arguments: 0)],
    ids=["for a state", "inside llama.cpp"],
)
def test_without_memory_for_its_cells_a_sequence_is_not_saved_and_goes_on(
    runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fail: Any
) -> None:
    expected = generate(runner, sequence(0, prompt(40)), 4)
    goes_on = sequence(1, prompt(40))
    begun = generate(runner, goes_on, 2)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        runner.cache.save(Save(1, 1))  # perhaps into memory prepared before
        runner.cache.forget(Forget(1))
        assert not runner.cache.save(Save(2, 1))
    assert not runner.cache.saved
    assert runner.cache.save(Save(3, 1))
    runner.cache.forget(Forget(3))
    assert generate(runner, goes_on, 2) == expected
    assert begun == expected[:2]


def test_sampled_sequences_in_one_pass_get_the_same_tokens_as_alone(runner: LlamaRunner) -> None:
    sampling = Sampling(temperature=1.0, top_k=20, repeat_penalty=1.2, frequency_penalty=0.2)
    alone = []
    for seq_id in range(SLOTS):
        alone.append(generate(runner, sequence(0, prompt(30), sampling, seed=seq_id), 12))
        runner.cache.remove(Removal(0, 0))
    together = [sequence(seq_id, prompt(30), sampling, seed=seq_id) for seq_id in range(SLOTS)]
    for _ in range(12):
        compute(runner, *((s, s.pending) for s in together))
    assert [s.tokens[s.prompt :] for s in together] == alone
    assert len({tuple(tokens) for tokens in alone}) == SLOTS


def test_a_token_has_its_bytes_and_its_end_flag(runner: LlamaRunner, model: LlamaModel) -> None:
    (draw,) = compute(runner, (sequence(0, prompt(5)), 5))
    assert isinstance(draw, Token)
    assert draw.piece == model.piece(draw.id)
    assert draw.ends == (draw.id in model.end_tokens)


def test_removing_frees_cells_from_a_position_on(runner: LlamaRunner) -> None:
    compute(runner, (sequence(0, prompt(50)), 50), (sequence(1, prompt(20)), 20))
    assert (last_cell(runner, 0), last_cell(runner, 1)) == (49, 19)
    runner.cache.remove(Removal(0, 30))
    assert (last_cell(runner, 0), last_cell(runner, 1)) == (29, 19)
    runner.cache.remove(Removal(0, 0))
    assert (last_cell(runner, 0), last_cell(runner, 1)) == (-1, 19)


def test_a_cancel_between_plan_and_pass_moves_no_row(runner: LlamaRunner) -> None:
    cancelled, neighbour = sequence(1, prompt(12)), sequence(2, prompt(9))
    wanted = plan((cancelled, 12), (neighbour, 9))
    cancelled.enter(State.ENDED)
    cancelled.seq_id, cancelled.computed = -1, 0
    assert runner.run(wanted).outcome is Outcome.DONE
    assert [last_cell(runner, seq_id) for seq_id in range(SLOTS)] == [-1, 11, 8]


class WatchedFlag(AbortFlag):
    """An abort flag that counts llama.cpp's checks of it, and can wait for the abort in one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.wait_at: int | None = None
        self.reached, self._aborted = threading.Event(), threading.Event()
        self.callback = llama_cpp.ggml_abort_callback(self._ask)

    def set(self) -> None:
        super().set()
        self._aborted.set()

    def _ask(self, _data: object) -> bool:
        self.asked += 1
        if self.asked == self.wait_at:
            self.reached.set()
            assert self._aborted.wait(WAIT)
        return self._string[0] != b"\x00"


def run_aborted(runner: LlamaRunner, wanted: StepPlan, begun: threading.Event) -> StepResult:
    """Run a plan and abort it from another thread once it has begun."""

    def stop() -> None:
        if begun.wait(WAIT):
            runner.abort()

    thread = threading.Thread(target=stop)
    thread.start()
    result = runner.run(wanted)
    thread.join()
    return result


@pytest.mark.parametrize(
    "done",
    [
        pytest.param(0.0, id="at once", marks=thorough),
        pytest.param(0.5, id="halfway"),
        pytest.param(0.95, id="near the end", marks=thorough),
    ],
)
def test_an_abort_amid_any_physical_batch_is_repaired(
    model: LlamaModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, done: float
) -> None:
    flag = WatchedFlag()
    monkeypatch.setattr(context, "AbortFlag", lambda: flag)
    with LlamaRunner(model, config()) as runner:
        expected_neighbour = generate(runner, sequence(0, prompt(30)), 10)
        runner.cache.remove(Removal(0, 0))
        neighbour, long, uncut = sequence(0, prompt(30)), sequence(1, prompt(LONG)), sequence(2, prompt(LONG))
        generate(runner, neighbour, 5)
        compute(runner, (long, 100), (uncut, 100))

        asked_before = flag.asked
        expected = generate(runner, uncut, 1)
        asks_of_a_pass = flag.asked - asked_before
        flag.wait_at = flag.asked + 1 + int(done * asks_of_a_pass)
        caplog.clear()
        result = run_aborted(runner, plan((long, long.pending)), flag.reached)

        assert (result.outcome, result.draws) == (Outcome.ABORTED, ())
        assert last_cell(runner, 1) == long.computed - 1 == 99
        assert [r for r in caplog.records if r.levelno >= logging.WARNING] == [], "an abort is no complaint"
        runner.arm()
        assert generate(runner, neighbour, 5) == expected_neighbour
        assert generate(runner, long, 5) == expected + generate(runner, uncut, 4)[1:]


def test_the_real_flag_stops_a_decode_that_runs(runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def decode(*arguments: object, _function: Any = llama_cpp.llama_decode) -> object:
        begun.set()
        return _function(*arguments)

    monkeypatch.setattr(llama_cpp, "llama_decode", decode)
    long = sequence(0, prompt(LONG + 500))
    assert run_aborted(runner, plan((long, long.pending)), begun).outcome is Outcome.ABORTED
    assert last_cell(runner, 0) == -1
    runner.arm()
    assert runner.run(plan((long, 10))).outcome is Outcome.DONE


def test_a_model_that_cannot_drop_part_of_a_sequence_drops_all_of_it(
    runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner._model, "traits", replace(runner._model.traits, can_trim=False))
    made = sequence(0, prompt(40))
    compute(runner, (made, 20))
    runner.abort()
    assert runner.run(plan((made, 20))).outcome is Outcome.ABORTED
    assert last_cell(runner, 0) == -1


def test_a_pass_without_room_computes_no_token(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "info", replace(model.info, context=SMALL))
    with LlamaRunner(model, config(slots=1)) as runner:
        made = sequence(0, prompt(SMALL))
        compute(runner, (made, SMALL))
        result = runner.run(plan((made, 1)))
        assert (result.outcome, result.draws) == (Outcome.NO_ROOM, ())
        assert last_cell(runner, 0) == SMALL - 1


@pytest.mark.parametrize("status", [-1, -2, -3])
def test_a_failed_decode_is_a_fault(runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(llama_cpp, "llama_decode", lambda *_: status)
    with pytest.raises(EngineFault, match=f"status {status}"):
        runner.run(plan((sequence(0, prompt(5)), 5)))


def test_a_plan_too_wide_or_with_a_foreign_id_does_not_reach_llama_cpp(
    runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp, "llama_decode", lambda *_: pytest.fail("it did"))
    with pytest.raises(ValueError, match="rows"):
        runner.run(plan((sequence(0, prompt(BATCH_ROWS + 1)), BATCH_ROWS + 1)))
    with pytest.raises(ValueError, match="without tokens"):
        runner.run(plan((sequence(0, prompt(5)), 0)))
    for wrong in (-1, runner._model.info.vocabulary):
        with pytest.raises(ValueError, match="vocabulary"):
            runner.run(plan((sequence(0, [5, wrong]), 2)))


def test_logits_without_a_number_fail_one_row(runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    true_logits = runner._context.logits

    def logits(outputs: int) -> Any:
        return true_logits(outputs) * np.array([[np.nan], [1]], np.float32)

    monkeypatch.setattr(runner._context, "logits", logits)
    first, second = compute(runner, (sequence(0, prompt(5)), 5), (sequence(1, prompt(5)), 5))
    assert isinstance(first, DrawFailure)
    assert isinstance(second, Token)


def test_a_sampler_that_cannot_be_made_fails_one_row(runner: LlamaRunner, caplog: pytest.LogCaptureFixture) -> None:
    wrong = Sampling(logit_bias=((runner._model.info.vocabulary, 1.0),))
    first, second = compute(runner, (sequence(0, prompt(5), wrong), 5), (sequence(1, prompt(5)), 5))
    assert isinstance(first, DrawFailure)
    assert isinstance(second, Token)
    assert "IndexError" in caplog.text


def test_a_draw_that_fails_among_others_fails_one_row(
    runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def draw(logits: Any, best: Any, truncations: Any) -> list[int]:
        if any(truncation.temperature == 7.0 for truncation in truncations):
            raise MemoryError("of one")
        return truncated(logits, best, truncations)

    monkeypatch.setattr(drawing, "draw", draw)
    rows = [sequence(at, prompt(5), Sampling(temperature=heat)) for at, heat in enumerate((1.0, 7.0, 2.0))]
    drawn = compute(runner, *((row, 5) for row in rows))
    assert [type(one) for one in drawn] == [Token, DrawFailure, Token]
    assert "MemoryError: of one" in caplog.text


def test_biases_and_penalties_of_one_row_do_not_reach_another(runner: LlamaRunner) -> None:
    plain = generate(runner, sequence(0, prompt(20)), 10)
    runner.cache.remove(Removal(0, 0))
    biased = Sampling(temperature=0.0, logit_bias=((plain[0], -100.0),), frequency_penalty=2.0)
    first, second = sequence(0, prompt(20), biased), sequence(1, prompt(20))
    for _ in range(10):
        compute(runner, (first, first.pending), (second, second.pending))
    assert first.tokens[20] != plain[0]
    assert second.tokens[20:] == plain


def log_softmax(logits: Any) -> Any:
    exact = logits.astype(np.float64)
    exact -= exact.max()
    return exact - np.log(np.exp(exact).sum())


def test_log_probabilities_are_the_models_own(
    runner: LlamaRunner, model: LlamaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    true_logits = runner._context.logits

    def logits(outputs: int) -> Any:
        given.append(true_logits(outputs)[0].copy())
        return true_logits(outputs)

    monkeypatch.setattr(runner._context, "logits", logits)
    changing = Sampling(temperature=2.0, top_k=50, repeat_penalty=1.5, logit_bias=((400, 20.0),))
    grammar = model.compile(Grammar(GrammarKind.REGEX, "[a-z ]{40}"))
    made = sequence(0, prompt(12), changing, grammar=grammar, logprobs=3)
    for _ in range(8):
        (draw,) = compute(runner, (made, made.pending))
        assert isinstance(draw, Token)
        exact = log_softmax(given[-1])
        assert draw.logprob == pytest.approx(exact[draw.id], abs=1e-4)
        assert [one.id for one in draw.top] == np.argsort(-exact, kind="stable")[:3].tolist()
        assert [one.logprob for one in draw.top] == pytest.approx(exact[[one.id for one in draw.top]], abs=1e-4)
        assert [one.piece for one in draw.top] == [model.piece(one.id, special=True) for one in draw.top]


@pytest.mark.parametrize("asked", [None, 0])
def test_log_probabilities_are_returned_only_on_request(runner: LlamaRunner, asked: int | None) -> None:
    (draw,) = compute(runner, (sequence(0, prompt(5), logprobs=asked), 5))
    assert isinstance(draw, Token)
    assert (draw.logprob is None) == (asked is None)
    assert draw.top == ()


def scores(runner: LlamaRunner, made: Sequence, *counts: int) -> list[Any]:
    """Return the scores of a prompt computed in chunks of those sizes, one after another."""
    found: list[Any] = []
    for count in counts:
        last = made.pending == count
        result = runner.run(StepPlan((Chunk(made, count, sample=last, score=True),), decode=False))
        made.computed += count
        assert len(result.scores) == 1
        found += result.scores[0]
    return found


@pytest.mark.parametrize("chunks", [(40,), (1, 38, 1), (20, 20)], ids=str)
def test_a_prompts_scores_are_those_of_each_prefix(runner: LlamaRunner, chunks: tuple[int, ...]) -> None:
    tokens = prompt(40)
    alone = []
    for length in range(1, 40):
        (draw,) = compute(runner, (sequence(0, tokens[:length], logprobs=2), length))
        assert isinstance(draw, Token)
        alone.append((log_softmax(runner._context.logits(1)[0])[tokens[length]], draw.top))
        runner.cache.remove(Removal(0, 0))
    found = scores(runner, sequence(1, tokens, logprobs=2), *chunks)
    assert [score for score, _ in found] == pytest.approx([score for score, _ in alone], abs=1e-3)
    assert [[one.id for one in top] for _, top in found] == [[one.id for one in top] for _, top in alone]


def test_a_pass_gives_its_maximum_of_scores_beside_a_row_per_slot(runner: LlamaRunner) -> None:
    scored = sequence(0, prompt(SCORED_AT_ONCE), logprobs=1)
    others = [sequence(seq_id, prompt(9)) for seq_id in range(1, SLOTS)]
    chunks = (Chunk(scored, SCORED_AT_ONCE, sample=True, score=True), *(Chunk(s, 9, sample=True) for s in others))
    result = runner.run(StepPlan(chunks, decode=False))
    assert result.outcome is Outcome.DONE
    assert [len(one) for one in result.scores] == [SCORED_AT_ONCE - 1]
    assert all(isinstance(draw, Token) for (draw,) in result.draws)


def test_grammars_of_several_rows_constrain_only_their_own(runner: LlamaRunner, model: LlamaModel) -> None:
    free = sequence(0, prompt(20))
    expected = generate(runner, free, 6)
    runner.cache.remove(Removal(0, 0))
    regexes = (r"\d{5}", "(ab|ba){3}")
    kept = [
        sequence(at + 1, prompt(20), grammar=model.compile(Grammar(GrammarKind.REGEX, regex)))
        for at, regex in enumerate(regexes)
    ]
    free = sequence(0, prompt(20))
    texts = dict.fromkeys(kept, b"")
    for _ in range(6):
        draws = compute(runner, *((s, s.pending) for s in (free, *kept)))
        for made, draw in zip(kept, draws[1:], strict=True):
            assert isinstance(draw, Token)
            texts[made] += draw.piece
    assert free.tokens[20:] == expected
    assert re.fullmatch(rb"\d{5}", texts[kept[0]])
    assert re.fullmatch(rb"[ab]{1,6}", texts[kept[1]])


def test_a_grammar_that_cannot_go_on_fails_one_row(runner: LlamaRunner, model: LlamaModel) -> None:
    stuck = sequence(0, prompt(5), grammar=model.compile(Grammar(GrammarKind.REGEX, "ab")))
    well = sequence(1, prompt(5))
    compute(runner, (stuck, 5), (well, 5))
    sampler = runner._drawer._samplers[stuck]
    assert sampler._constraint
    sampler._constraint.denied()  # wait for its thread
    sampler._constraint.accept(stuck.tokens[-1])  # twice
    first, second = compute(runner, (stuck, 1), (well, 1))
    assert isinstance(first, DrawFailure)
    assert (first.code, first.param) == ("invalid_grammar", "grammar")
    assert isinstance(second, Token)


def test_a_grammar_that_the_model_did_not_compile_fails_one_row(
    runner: LlamaRunner, caplog: pytest.LogCaptureFixture
) -> None:
    (draw,) = compute(runner, (sequence(0, prompt(5), grammar=b"foreign"), 5))
    assert isinstance(draw, DrawFailure)
    assert "no compiled grammar" in caplog.text


def test_a_control_token_shows_its_name_on_request(runner: LlamaRunner, model: LlamaModel) -> None:
    (end,) = model.end_tokens
    forced = Sampling(temperature=0.0, logit_bias=((end, 100.0),))
    shown, hidden = sequence(0, prompt(5), forced, show_special=True), sequence(1, prompt(5), forced)
    draws = compute(runner, (shown, 5), (hidden, 5))
    assert draws == [Token(end, b"</s>", True), Token(end, b"", True)]


def test_the_probe_passes_and_leaves_no_cells(runner: LlamaRunner) -> None:
    runner.probe()
    assert last_cell(runner, 0) == -1


def test_a_context_that_cannot_drop_the_last_cells_is_found_out(
    runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runner.probe().drops
    monkeypatch.setattr(llama_cpp, "llama_memory_seq_rm", lambda _memory, _seq_id, start, _end: not start)
    probed = runner.probe()
    assert (probed.drops, probed.partial) == (False, None)


@pytest.mark.parametrize("refusing", ["llama_state_seq_set_data_ext", "llama_memory_seq_rm"])
def test_a_context_that_cannot_go_back_to_a_partial_state_saves_whole_ones(
    refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = EngineConfig(model=str(family_model("jamba")), slots=1, context=256, threads=1)
    with LlamaModel(ours, lambda _share: None) as hybrid, LlamaRunner(hybrid, ours) as runner:
        probed = runner.probe()
        assert probed.partial is not None
        assert probed.drops
        remove = llama_cpp.llama_memory_seq_rm
        monkeypatch.setattr(llama_cpp, refusing, lambda *given: remove(*given) if given[2] == 0 else 0)
        probed = runner.probe()
        assert probed.partial is None
        assert not probed.drops


def test_a_probe_that_gives_no_logits_is_a_fault(runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner._context, "logits", lambda _outputs: np.full((1, 3), np.nan, np.float32))
    with pytest.raises(LoadError, match="a step of 32 tokens"):
        runner.probe()


@pytest.mark.parametrize("status", [-1, 1, 2])
def test_a_probe_whose_decode_fails_is_a_load_error(
    runner: LlamaRunner, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(llama_cpp, "llama_decode", lambda *_: status)
    with pytest.raises(LoadError, match="cannot run the model"):
        runner.probe()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    makers = ("llama_init_from_model", "llama_sampler_chain_init")
    return count_calls(monkeypatch, *makers, "llama_free", "llama_sampler_free")


def test_every_llama_cpp_object_is_freed_once(model: LlamaModel, calls: Counter[str]) -> None:
    with LlamaRunner(model, config(context=256)) as runner:
        two, one = Sampling(repeat_penalty=1.1, typical_p=0.5), Sampling(typical_p=0.5)
        closed, left = sequence(0, prompt(4), two), sequence(1, prompt(4), one)
        compute(runner, (closed, 4), (left, 4))
        runner.close(closed)
        runner.close(closed)
        assert calls["llama_sampler_free"] == 2
    runner.shut_down()
    assert calls == {
        "llama_init_from_model": 1,
        "llama_free": 1,
        "llama_sampler_chain_init": 3,
        "llama_sampler_free": 3,
    }


def test_the_buffers_are_those_that_were_simulated(model: LlamaModel) -> None:
    with LlamaRunner(model, config(slots=model.info.slots, context=model.info.context)) as runner:
        assert runner.buffers.cells == model.memory.buffers.cells
        assert runner.buffers.compute == pytest.approx(model.memory.buffers.compute, abs=2**15)


def test_a_context_that_llama_cpp_refuses_is_a_load_error(model: LlamaModel, calls: Counter[str]) -> None:
    too_many = llama_cpp.llama_max_parallel_sequences() + 1
    with pytest.raises(LoadError, match="n_seq_max must be"):
        LlamaRunner(model, config(slots=too_many))
    assert calls["llama_free"] == 0


def test_a_unified_cache_that_is_longer_than_the_training_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    unified = config(kv_unified=True)
    with LlamaModel(unified, lambda _share: None) as model, LlamaRunner(model, unified):
        assert model.info.cells > model.info.trained_context
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
