"""LoRA adapters on llama.cpp: each set computes what a model with these adapters merged computes."""

import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.core.kv.ledger import KVLedger
from engine.core.kv.prefix_store import PrefixStore
from engine.core.scheduler import Scheduler
from engine.core.turns import Turns
from engine.errors import LoadError
from engine.events import Event, Finished
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.request import GenerationRequest, Sampling
from engine.worker.admission import admit
from tests.engine.driver import at_once
from tests.engine.stepping import step
from tests.models import model_path
from tests.random_adapter import write_adapter, write_merged

PROMPT = "Once upon a time there was a little girl who liked to play in the garden with her dog"
SETS: dict[tuple[tuple[int, float], ...], list[tuple[int, float]]] = {
    (): [],
    ((0, 1.0),): [(10, 1.0)],
    ((1, 1.0),): [(11, 1.0)],
    ((0, 0.5),): [(10, 0.5)],
    ((0, -0.5), (1, 0.25)): [(10, -0.5), (11, 0.25)],
}
"""Each set of adapters by id, and the same by the seeds of the adapters."""


class Run:
    """A model with its scheduler, driven by hand."""

    def __init__(self, stack: ExitStack, model: Path, *adapters: Path, **settings: Any) -> None:
        config = EngineConfig(
            model=str(model), slots=6, context=256, threads=1, adapters=tuple(map(str, adapters)), **settings
        )
        self.model = stack.enter_context(LlamaModel(config, lambda _share: None))
        self.runner = stack.enter_context(LlamaRunner(self.model, config))
        ledger = KVLedger(6, self.model.traits, PrefixStore(2**24, self.runner.probe().whole.of))
        self.scheduler = Scheduler(ledger, step_target=0.25, queue_limit=100)
        self.turns = Turns(1)
        self.events: dict[int, list[Event]] = {}

    def add(self, key: int, **fields: Any) -> None:
        sampling = Sampling(temperature=0.0, ignore_eos=True)
        asked: dict[str, Any] = {"prompts": (PROMPT,), "max_tokens": 12, "sampling": sampling, "logprobs": 0} | fields
        self.scheduler.add(at_once(admit(key, GenerationRequest(id=str(key), **asked), self.model)))

    def drain(self) -> None:
        while self.scheduler.busy:
            for key, event in step(self.scheduler, self.turns, self.runner):
                self.events.setdefault(key, []).append(event)

    def answer(self, key: int) -> Finished:
        finished = self.events[key][-1]
        assert isinstance(finished, Finished)
        return finished

    def ask(self, **fields: Any) -> Finished:
        key = len(self.events)
        self.add(key, **fields)
        self.drain()
        return self.answer(key)


def logprobs(answer: Finished) -> list[float]:
    return [detail.logprob or 0.0 for detail in answer.details]


def tokens(answer: Finished) -> list[int]:
    return [detail.id for detail in answer.details]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="module")
def run(folder: Path) -> Iterator[Run]:
    adapters = [write_adapter(folder / f"{seed}.gguf", model_path(), seed) for seed in (10, 11)]
    with ExitStack() as stack:
        yield Run(stack, model_path(), *adapters)


@pytest.mark.parametrize("adapters", SETS)
def test_a_set_computes_what_the_merged_model_computes(
    run: Run, folder: Path, adapters: tuple[tuple[int, float], ...]
) -> None:
    with ExitStack() as stack:
        merged = Run(stack, write_merged(folder / "merged.gguf", model_path(), SETS[adapters])).ask()
    answer = run.ask(adapters=adapters, cache_prompt=False)
    assert tokens(answer) == tokens(merged)
    assert logprobs(answer) == pytest.approx(logprobs(merged), abs=5e-3)  # cells are F16


def test_each_set_changes_the_answer(run: Run) -> None:
    answers = {adapters: run.ask(adapters=adapters) for adapters in SETS}
    assert len({tuple(round(value, 3) for value in logprobs(answer)) for answer in answers.values()}) == len(SETS)


def test_sets_beside_each_other_compute_what_each_computes_alone(run: Run) -> None:
    alone = {adapters: tokens(run.ask(adapters=adapters, cache_prompt=False)) for adapters in SETS}
    mixed = {1000 + at: adapters for at, adapters in enumerate([*SETS, *SETS])}
    for key, adapters in mixed.items():
        run.add(key, adapters=adapters)
    run.drain()
    assert {key: tokens(run.answer(key)) for key in mixed} == {key: alone[adapters] for key, adapters in mixed.items()}


def test_cells_are_reused_within_a_set_only(run: Run) -> None:
    prompt = "It was a sunny day and the birds sang in the trees behind the old house"
    for adapters in SETS:
        first = run.ask(prompts=(prompt,), adapters=adapters)
        again = run.ask(prompts=(prompt,), adapters=adapters)
        assert first.cached < 4 < again.cached, "the beginnings of prompts may be the same"
        assert logprobs(again) == pytest.approx(logprobs(first), abs=5e-3)


def test_speculation_beside_other_sets_keeps_the_text(run: Run) -> None:
    fields = {"prompts": ("la la la la la la la la la la",), "max_tokens": 40, "cache_prompt": False}
    alone = {adapters: tokens(run.ask(adapters=adapters, speculative=False, **fields)) for adapters in SETS}
    for at, adapters in enumerate(SETS):
        run.add(2000 + at, adapters=adapters, speculative=True, **fields)
    run.drain()
    assert [tokens(run.answer(2000 + at)) for at in range(len(SETS))] == list(alone.values())


def test_all_adapters_together_have_a_scale_of_one(run: Run) -> None:
    assert math.isclose(sum(scale for _, scale in run.model.adapters.all), 1.0)
    assert run.model.info.adapters == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"architecture": "qwen3"}, "arch mismatch"),
        ({"kind": "vera"}, "expect adapter.type to be 'lora'"),
        ({"rename": {"output.weight": "blk.99.attn_q.weight"}}, "does not exist in base model"),
        ({"rename": {"blk.0.ffn_down.weight": "blk.0.ffn_up.weight"}}, "incorrect shape"),
        ({"invocation": [5, 6]}, "aLoRA"),
    ],
)
def test_a_file_for_another_model_is_refused_in_one_line(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    path = write_adapter(tmp_path / "wrong.gguf", model_path(), 1, **fields)
    config = EngineConfig(model=str(model_path()), slots=1, context=64, adapters=(str(path),))
    with pytest.raises(LoadError, match=reason) as refused:
        LlamaModel(config, lambda _share: None)
    assert str(path) in refused.value.message
    assert "\n" not in refused.value.message


def test_a_model_is_no_adapter() -> None:
    config = EngineConfig(model=str(model_path()), slots=1, context=64, adapters=(str(model_path()),))
    with pytest.raises(LoadError, match=r"expect general\.type to be 'adapter'"):
        LlamaModel(config, lambda _share: None)
