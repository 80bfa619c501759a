"""Slots that share their cells, with llama.cpp."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import llama_cpp
import pytest

from engine.config import EngineConfig
from engine.core.changes import carry_out
from engine.core.kv.pooled_ledger import make_ledger
from engine.core.kv.prefix_store import PrefixStore
from engine.core.scheduler import Scheduler
from engine.core.step import Outcome
from engine.core.turns import Turns
from engine.events import Finished
from engine.info import EngineMetrics
from engine.llama.batch import Batch
from engine.llama.context import LlamaContext
from engine.llama.memory.parameters import BATCH_ROWS, context_params
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.request import GenerationRequest, Sampling
from engine.worker.admission import admit
from tests.architectures.engine import ALTERNATIVES, check_equal
from tests.architectures.families import FAMILIES, quick_for_some
from tests.architectures.models import family_model
from tests.engine.driver import at_once
from tests.models import model_path
from tests.repeat import thorough

GREEDY = Sampling(temperature=0.0, ignore_eos=True)
CELLS = 1024
SLOTS = 4
WINDOWED = ("gemma-2", "gemma-3")
"""Families with sliding windows whose long answers rounding does not change."""


def config(path: Path) -> EngineConfig:
    return EngineConfig(
        model=str(path), slots=SLOTS, context=CELLS // SLOTS, kv_unified=True, threads=1, speculation=False
    )


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    with LlamaModel(config(model_path()), lambda _share: None) as loaded:
        yield loaded


def answers(
    model: LlamaModel, requests: list[tuple[str, int]], *, at_a_time: int, path: Path | None = None
) -> tuple[list[Finished], EngineMetrics]:
    """Return the answers to prompts with a number of tokens each, and the metrics."""
    with LlamaRunner(model, config(path or model_path())) as runner:
        probed = runner.probe()
        store = PrefixStore(2**28, probed.whole.of, probed.partial.of if probed.partial else None)
        ledger = make_ledger(model.info.slots, model.traits, store)
        scheduler = Scheduler(ledger, step_target=0.25, queue_limit=100)
        turns, ends = Turns(1), dict[int, Finished]()
        waiting = list(enumerate(requests))
        while waiting or scheduler.busy:
            while waiting and scheduler.metrics().held + scheduler.metrics().waiting < at_a_time:
                key, (prompt, tokens) = waiting.pop(0)
                request = GenerationRequest(
                    id="t", prompts=(prompt,), max_tokens=tokens, sampling=GREEDY, logprobs=ALTERNATIVES
                )
                scheduler.add(at_once(admit(key, request, model)))
            [turn] = turns.next([scheduler.demand()])
            work = scheduler.plan(turn, contended=False)
            scheduler.drop_unsaved(carry_out(work.changes, runner))
            if work.plan:
                result = runner.run(work.plan)
                assert result.outcome is Outcome.DONE, "llama.cpp found no cells for a step"
                ends |= {key: e for key, e in scheduler.apply(work.plan, result) if isinstance(e, Finished)}
        return [ends[key] for key in range(len(requests))], scheduler.metrics()


def prompt(words: int, first: str = "Once") -> str:
    return f"{first} upon a time" + " there was a little girl" * (words // 5)


def test_a_sequence_may_be_longer_than_a_slot(model: LlamaModel) -> None:
    assert model.info.context == CELLS
    assert model.info.cells == CELLS
    (end,), metrics = answers(model, [(prompt(280), 100)], at_a_time=1)
    assert end.tokens == 100
    assert metrics.preempted == 0


@thorough
def test_sequences_together_answer_as_alone(model: LlamaModel) -> None:
    """They outgrow the cache, so that some are preempted, saved and restored, and prefixes are shared."""
    requests = [(prompt(100 + 20 * at, "Once" if at % 2 else f"Day {at}"), 150) for at in range(8)]
    together, metrics = answers(model, requests, at_a_time=8)
    alone = [answers(model, [request], at_a_time=1)[0][0] for request in requests]
    check_alike(together, alone)
    assert metrics.preempted > 0
    assert metrics.restored_tokens > 0


@pytest.mark.parametrize("family", quick_for_some(one.name for one in FAMILIES))
def test_every_family_shares_cells(family: str) -> None:
    path = family_model(family)
    with LlamaModel(config(path), lambda _share: None) as model:
        requests = [(prompt(40), 6), (prompt(40) + " and", 6), (prompt(40, "Day"), 6), (prompt(40), 6)]
        together, _ = answers(model, requests, at_a_time=SLOTS, path=path)
        alone = [answers(model, [request], at_a_time=1, path=path)[0][0] for request in requests]
        check_alike(together, alone)


@thorough
@pytest.mark.parametrize("family", WINDOWED)
def test_sequences_of_windows_together_answer_as_alone(family: str) -> None:
    """They outgrow the cache, go back to checkpoints, and are preempted, saved, restored and copied."""
    path = family_model(family)
    with LlamaModel(config(path), lambda _share: None) as model:
        assert not model.traits.can_trim
        requests = [(prompt(20 + 10 * (at % 5), "Once" if at % 2 else f"Day {at % 3}"), 200) for at in range(16)]
        together, metrics = answers(model, requests, at_a_time=8, path=path)
        alone = [answers(model, [request], at_a_time=1, path=path)[0][0] for request in requests]
        check_alike(together, alone)
        assert metrics.preempted > 0
        assert metrics.restored_tokens > 0


@pytest.mark.parametrize("unified", [False, True])
def test_llama_cpp_writes_over_full_windows_of_others_only_in_a_unified_cache(*, unified: bool) -> None:
    """So the windows of a unified cache are never full ones: a prefix could not be cut back to."""
    settings = replace(config(family_model("gemma-3")), kv_unified=unified)
    with ExitStack() as stack:
        model = stack.enter_context(LlamaModel(settings, lambda _share: None))
        params = context_params(settings, CELLS, model.attention, full_windows=True)
        context = stack.enter_context(LlamaContext(model, settings, params, purpose="a test"))
        memory = llama_cpp.llama_get_memory(context.handle)
        batch = Batch(BATCH_ROWS, model.info.vocabulary)

        def compute(seq_id: int, start: int, count: int) -> None:
            batch.clear()
            batch.add([10] * count, seq_id=seq_id, start=start, output=True)
            assert context.decode(batch) is Outcome.DONE

        def first() -> int:
            return int(llama_cpp.llama_memory_seq_pos_min(memory, 1))

        compute(0, 0, 100)
        compute(1, 0, 100)
        assert first() == 0
        context.remove(0, 50)
        compute(0, 50, 100)
        assert (first() > 0) == unified


def check_alike(ends: list[Finished], others: list[Finished]) -> None:
    for end, other in zip(ends, others, strict=True):
        check_equal(end.details, other.details)
