"""The contract of a runner with the scheduler, tested on the fake runner and on llama.cpp."""

import random
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.core.kv.cell_changes import Copy, Forget, Removal, Restore, Rewind, Save, Swap
from engine.core.kv.pooled_ledger import make_ledger
from engine.core.model import Model
from engine.core.reasoning_budget import ReasoningBudget
from engine.core.scheduler import Scheduler
from engine.core.sequence import Sequence
from engine.core.step import SCORED_AT_ONCE, Chunk, Outcome, Runner, StepPlan
from engine.core.token import Score, Token
from engine.core.turns import Turns
from engine.events import Finished, Text
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.request import GenerationRequest, Grammar, GrammarKind, Reasoning, Sampling
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from engine.worker.admission import admit
from tests.architectures.models import family_model
from tests.engine.driver import at_once, running
from tests.engine.stepping import step
from tests.models import model_path
from tests.repeat import every_case

pytestmark = every_case

SLOTS, CONTEXT = 4, 512
GREEDY = Sampling(temperature=0.0, ignore_eos=True)
PROMPT = "Once upon a time there was a little girl who liked to play in the garden with her dog"

Pair = tuple[Model, Runner]


def open_fake(_stack: ExitStack, **traits: bool) -> Pair:
    model = FakeModel(slots=SLOTS, context=CONTEXT, **traits)
    return model, FakeRunner(model)


def open_llama(
    stack: ExitStack, path: Path | None = None, adapt: Callable[[LlamaModel], None] = lambda _model: None, **fields: Any
) -> Pair:
    config = EngineConfig(model=str(path or model_path()), slots=SLOTS, context=CONTEXT, threads=1, **fields)
    model = stack.enter_context(LlamaModel(config, lambda _share: None))
    adapt(model)
    return model, stack.enter_context(LlamaRunner(model, config))


def as_on_a_device(model: LlamaModel) -> None:
    """Let it plan and run as on a device that cannot abort a step, and whose cells are copied slowly."""
    model.aborts, model.fully_offloaded = False, True
    model.use_copy_speed(0.5, 10)
    model.traits = replace(model.traits, idle_rows=SLOTS, idle_cells=SLOTS * CONTEXT, largest_step=128)


REWINDING: dict[str, Callable[[ExitStack], Pair]] = {
    "fake": partial(open_fake, can_trim=False),
    "fake with windows": partial(open_fake, windowed=True),
    "hybrid": lambda stack: open_llama(stack, family_model("jamba")),
    "windows": lambda stack: open_llama(stack, family_model("gemma-2")),
    "unified windows": lambda stack: open_llama(stack, family_model("gemma-2"), kv_unified=True),
}


OPENERS: dict[str, Callable[[ExitStack], Pair]] = {
    "fake": open_fake,
    "llama": open_llama,
    "unified": partial(open_llama, kv_unified=True),
    "backend sampling": partial(open_llama, backend_sampling=True),
    "as on a device": partial(open_llama, adapt=as_on_a_device),
}


@pytest.fixture(scope="module", params=[*OPENERS.values()], ids=[*OPENERS])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    opener: Callable[[ExitStack], Pair] = request.param
    with ExitStack() as stack:
        yield opener(stack)


@pytest.fixture(autouse=True)
def clean(pair: Pair) -> Iterator[None]:
    yield
    for seq_id in range(SLOTS):
        pair[1].cache.remove(Removal(seq_id, 0))


def sequence(
    pair: Pair, seq_id: int, text: str = PROMPT, sampling: Sampling = GREEDY, stop_tokens: tuple[int, ...] = ()
) -> Sequence:
    """Return a sequence that runs in a slot, as the scheduler would make it."""
    return running(seq_id, pair[0].tokenize(text), 64, sampling=sampling, stop_tokens=stop_tokens)


def compute(runner: Runner, *chunks: tuple[Sequence, int]) -> list[int]:
    """Compute one pass; return the drawn tokens, and advance the sequences as the scheduler would."""
    plan = StepPlan(
        tuple(Chunk(s, count, sample=count == s.pending) for s, count in chunks),
        decode=all(count == 1 for _, count in chunks),
    )
    runner.arm()
    result = runner.run(plan)
    assert result.outcome is Outcome.DONE
    assert result.whole_rows in {0, sum(chunk.sample for chunk in plan.chunks)}
    assert result.seconds > 0
    draws = iter(result.draws)
    drawn = []
    for chunk in plan.chunks:
        chunk.sequence.computed += chunk.count
        if chunk.sample:
            (token,) = next(draws)
            assert isinstance(token, Token)
            chunk.sequence.tokens.append(token.id)
            drawn.append(token.id)
    assert next(draws, None) is None
    return drawn


def decode(runner: Runner, sequence: Sequence, tokens: int) -> list[int]:
    return [compute(runner, (sequence, sequence.pending))[0] for _ in range(tokens)]


def test_a_prompt_in_chunks_is_the_prompt_at_once(pair: Pair) -> None:
    _, runner = pair
    whole = decode(runner, sequence(pair, 0), 8)
    chunked = sequence(pair, 1)
    while chunked.pending > 5:
        compute(runner, (chunked, 3))
    assert decode(runner, chunked, 8) == whole


def test_sequences_in_one_pass_get_the_same_tokens_as_alone(pair: Pair) -> None:
    _, runner = pair
    texts = [PROMPT[: 20 + 15 * i] for i in range(SLOTS)]
    alone = []
    for text in texts:
        lone = sequence(pair, 2, text)
        alone.append(decode(runner, lone, 6))
        runner.cache.remove(Removal(2, 0))
        runner.close(lone)
    together = [sequence(pair, i, text) for i, text in enumerate(texts)]
    got: list[list[int]] = [[] for _ in texts]
    for _ in range(6):
        for tokens, token in zip(got, compute(runner, *((s, s.pending) for s in together)), strict=True):
            tokens.append(token)
    assert got == alone


def test_a_slot_serves_another_sequence_after_its_cells_are_dropped(pair: Pair) -> None:
    _, runner = pair
    expected = decode(runner, sequence(pair, 0), 5)
    decode(runner, sequence(pair, 1, "something else entirely"), 5)
    runner.cache.remove(Removal(1, 0))
    assert decode(runner, sequence(pair, 1), 5) == expected


def test_part_of_a_slot_can_be_dropped_and_computed_again(pair: Pair) -> None:
    model, runner = pair
    assert model.traits.can_trim
    first = sequence(pair, 0)
    expected = decode(runner, first, 5)
    again = sequence(pair, 0)
    again.computed = again.prompt // 2
    runner.cache.remove(Removal(0, again.computed))
    assert decode(runner, again, 5) == expected


def test_a_copied_prefix_gives_the_same_tokens_as_its_source(pair: Pair) -> None:
    _, runner = pair
    first = sequence(pair, 0)
    expected = decode(runner, first, 5)
    decode(runner, sequence(pair, 2, "what the target held before is gone"), 3)
    for tokens in (first.prompt - 1, first.prompt // 2):
        again = sequence(pair, 2)
        runner.cache.copy(Copy(0, 2, tokens))
        again.computed = tokens
        assert decode(runner, again, 5) == expected
    assert decode(runner, first, 5) == decode(runner, again, 5), "the source goes on as if nothing had happened"


def test_two_sequences_continue_unchanged_after_they_swap_their_slots(pair: Pair) -> None:
    _, runner = pair
    texts = PROMPT, "something else entirely"
    whole = [decode(runner, sequence(pair, at, text), 6) for at, text in enumerate(texts)]
    for at in range(len(texts)):
        runner.cache.remove(Removal(at, 0))
    moved = [sequence(pair, at, text) for at, text in enumerate(texts)]
    begun = [decode(runner, one, 3) for one in moved]
    runner.cache.swap(Swap(0, 1))
    for one in moved:
        one.seq_id = 1 - one.seq_id
    assert [had + decode(runner, one, 3) for had, one in zip(begun, moved, strict=True)] == whole


@pytest.mark.parametrize("pair", REWINDING.values(), ids=list(REWINDING), indirect=True)
@pytest.mark.parametrize("moved", [False, True])
def test_a_slot_goes_back_to_a_checkpoint(pair: Pair, moved: bool) -> None:
    model, runner = pair
    assert model.traits.needs_checkpoints
    first = sequence(pair, 0)
    compute(runner, (first, 30))
    assert runner.cache.save(Save(1, 0, partial=True))
    expected = decode(runner, first, 5)
    again = sequence(pair, 2 if moved else 0)
    if moved:
        runner.cache.copy(Copy(0, 2, first.computed))
    for _ in range(2):
        runner.cache.rewind(Rewind(1, again.seq_id, 30))
        again.computed, again.tokens = 30, first.tokens[: first.prompt]
        assert decode(runner, again, 5) == expected
    runner.cache.forget(Forget(1))


@pytest.mark.parametrize("target", [0, 2])
def test_a_restored_prefix_gives_the_same_tokens_as_the_saved_one(pair: Pair, target: int) -> None:
    _, runner = pair
    first = sequence(pair, 0)
    expected = decode(runner, first, 5)
    assert runner.cache.save(Save(7, 0))
    assert decode(runner, first, 2)
    runner.cache.remove(Removal(0, 0))
    decode(runner, sequence(pair, 0, "what overwrote it"), 3)
    decode(runner, sequence(pair, 2, "what the target held before is gone"), 3)
    for tokens in (first.prompt - 1, first.prompt // 2, first.prompt - 1):
        again = sequence(pair, target)
        runner.cache.restore(Restore(7, target, tokens))
        again.computed = tokens
        assert decode(runner, again, 5) == expected
    runner.cache.forget(Forget(7))
    runner.cache.forget(Forget(7))


def test_cells_that_were_read_continue_unchanged_in_another_slot(pair: Pair) -> None:
    _, runner = pair
    first, again = sequence(pair, 0), sequence(pair, 2)
    expected = decode(runner, first, 5)
    assert runner.cache.write(2, runner.cache.read(0), first.computed)
    runner.cache.remove(Removal(2, first.prompt - 1))
    again.computed = first.prompt - 1
    assert decode(runner, again, 5) == expected


def test_cells_that_do_not_fit_leave_the_slot_empty(pair: Pair) -> None:
    _, runner = pair
    first = sequence(pair, 0)
    decode(runner, first, 1)
    cells = runner.cache.read(0)
    assert not runner.cache.write(2, cells, first.computed + 1)
    assert not runner.cache.write(2, cells[: len(cells) // 2], first.computed)
    assert not runner.cache.write(2, b"", 1)
    assert runner.cache.write(2, cells, first.computed)


def test_an_aborted_pass_computes_no_token_and_the_next_one_is_right(pair: Pair) -> None:
    _, runner = pair
    expected = decode(runner, sequence(pair, 0), 5)
    interrupted = sequence(pair, 1)
    runner.arm()
    runner.abort()
    result = runner.run(StepPlan((Chunk(interrupted, interrupted.pending, sample=True),), decode=False))
    assert (result.outcome, result.draws) == (Outcome.ABORTED, ())
    assert decode(runner, interrupted, 5) == expected


def test_arming_forgets_an_abort_that_came_too_late(pair: Pair) -> None:
    _, runner = pair
    runner.abort()
    assert decode(runner, sequence(pair, 0), 1)


def score(pair: Pair, seq_id: int, tokens: list[int], share: int) -> tuple[list[Score], Token]:
    """Return the scores of all tokens but the first, computed in chunks of `share`, and the draw after them."""
    scored = running(seq_id, tokens, 64, logprobs=3, sampling=GREEDY)
    scores: list[Score] = []
    while scored.pending:
        count = min(share, scored.pending)
        chunk = Chunk(scored, count, sample=count == scored.pending, score=scored.pending > 1)
        pair[1].arm()
        result = pair[1].run(StepPlan((chunk,), decode=False))
        scores += [one for of_chunk in result.scores for one in of_chunk]
        scored.computed += count
    ((draw,),) = result.draws
    assert isinstance(draw, Token)
    return scores, draw


def check_close(scores: list[Score], expected: list[Score]) -> None:
    """Check that two results are equal up to the rounding of passes of different shapes."""
    assert [one for one, _ in scores] == pytest.approx([one for one, _ in expected], abs=0.05)
    for (_, top), (_, other) in zip(scores, expected, strict=True):
        assert [one.logprob for one in top] == pytest.approx([one.logprob for one in other], abs=0.05)


def test_scores_are_the_same_in_chunks_of_any_length(pair: Pair) -> None:
    tokens = pair[0].tokenize(PROMPT)[:SCORED_AT_ONCE]
    whole, draw = score(pair, 0, tokens, len(tokens))
    assert len(whole) == len(tokens) - 1
    assert all(len(top) == 3 and one <= top[0].logprob < 0 for one, top in whole)
    chunked, again = score(pair, 1, tokens, 5)
    check_close(chunked, whole)
    assert again.id == draw.id


def test_a_draw_has_the_logprobs_of_a_score(pair: Pair) -> None:
    tokens = pair[0].tokenize(PROMPT)[:40]
    drawn: list[Score] = []
    for seq_id in range(SLOTS):
        scores, token = score(pair, seq_id, tokens, 40)
        if drawn:
            check_close(scores[-len(drawn) :], drawn)
        assert token.logprob is not None
        drawn.append((token.logprob, token.top))
        tokens = [*tokens, token.id]


def test_the_tokens_that_end_the_reasoning_are_forced(pair: Pair) -> None:
    model, runner = pair
    ending = model.tokenize("</think>", begin=False)
    limited = sequence(pair, 0)
    limited.reasoning = ReasoningBudget(Reasoning(budget=2, opening="<think>", closing="</think>", opened=True), ending)
    free = decode(runner, sequence(pair, 1), 2)
    assert decode(runner, limited, 2 + len(ending)) == [*free, *ending]
    assert not limited.reasoning.due


@pytest.mark.parametrize("closes_early", [True, False])
def test_the_end_of_the_reasoning_is_forced_only_where_the_grammar_allows_it(pair: Pair, closes_early: bool) -> None:
    model, runner = pair
    ending = model.tokenize("</b>", begin=False)
    closing = b"".join(model.piece(token) for token in ending).decode()
    text = f"a{closing}c" if closes_early else "abc"
    limited = sequence(pair, 0)
    limited.grammar = model.compile(Grammar(GrammarKind.REGEX, text))
    limited.reasoning = ReasoningBudget(Reasoning(budget=0, opening="<b>", closing="</b>", opened=True), ending)
    written = b""
    while len(written) < len(text):
        written += b"".join(map(model.piece, decode(runner, limited, 1)))
    assert written.decode() == text
    assert bool(limited.reasoning.due) != closes_early


def test_the_end_of_the_reasoning_is_not_forced_where_its_tokens_must_not_come_yet(pair: Pair) -> None:
    model, runner = pair
    ending = model.tokenize("</b>", begin=False)
    limited = sequence(pair, 0, sampling=GREEDY.replaced(min_tokens=3), stop_tokens=(ending[-1],))
    limited.reasoning = ReasoningBudget(Reasoning(budget=0, opening="<b>", closing="</b>", opened=True), ending)
    drawn = decode(runner, limited, 3 + len(ending))
    assert ending[-1] not in drawn[:3]
    assert drawn[3:] == ending


def test_closing_a_sequence_is_repeatable(pair: Pair) -> None:
    _, runner = pair
    made = sequence(pair, 0)
    decode(runner, made, 1)
    runner.close(made)
    runner.close(made)


def test_a_whole_request_goes_through_the_scheduler(pair: Pair) -> None:
    model, runner = pair
    scheduler = Scheduler(make_ledger(SLOTS, model.traits), step_target=0.1, queue_limit=10)
    turns = Turns(1)
    request = GenerationRequest(id="t", prompts=(PROMPT,), n=6, max_tokens=20, sampling=GREEDY, stream=True)
    scheduler.add(at_once(admit(1, request, model)))
    texts = [""] * 6
    while scheduler.busy:
        for _, event in step(scheduler, turns, runner):
            if isinstance(event, Text | Finished):
                texts[event.choice] += event.text
    assert len(set(texts)) == 1
    assert texts[0]
    assert scheduler.metrics().active_tokens == 0


@pytest.mark.parametrize("seed", range(3))
def test_requests_that_come_and_leave_do_not_change_the_texts_of_others(pair: Pair, seed: int) -> None:
    draw = random.Random(seed)
    prompts = [PROMPT[: draw.randrange(20, 80)] + draw.choice(("", ", and", " or")) for _ in range(12)]
    lengths = [draw.randrange(1, 40) for _ in prompts]
    together = serve(pair, list(zip(prompts, lengths, strict=True)), draw, leaving={1, 4, 5})
    assert len(together) == len(prompts) - 3
    for at, text in together.items():
        assert serve(pair, [(prompts[at], lengths[at])]) == {0: text}


def serve(
    pair: Pair, asked: list[tuple[str, int]], draw: random.Random | None = None, leaving: AbstractSet[int] = frozenset()
) -> dict[int, str]:
    """Serve requests of so many tokens, with `draw` at random times; some leave. Return the texts of the others."""
    model, runner = pair
    scheduler = Scheduler(make_ledger(SLOTS, model.traits), step_target=0.1, queue_limit=20)
    turns, coming, texts, due = Turns(1), list(enumerate(asked)), dict[int, str](), set(leaving)
    while coming or scheduler.busy:
        if coming and (draw is None or draw.random() < 1 / 2):
            at, (prompt, tokens) = coming.pop(0)
            request = GenerationRequest(id="t", prompts=(prompt,), max_tokens=tokens, sampling=GREEDY, stream=True)
            scheduler.add(at_once(admit(at, request, model)))
            texts[at] = ""
        elif draw and draw.random() < 1 / 8 and (gone := sorted(due & texts.keys())):
            if gone[0] in scheduler:
                scheduler.cancel(gone[0])
            due.remove(gone[0])
        for at, event in step(scheduler, turns, runner):
            if isinstance(event, Text | Finished):
                texts[at] += event.text
    for slot in range(SLOTS):
        runner.cache.remove(Removal(slot, 0))
    return {at: text for at, text in texts.items() if at not in leaving}


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=7, top_p=0.9, repeat_penalty=1.1, top_k=40)], ids=str)
@pytest.mark.parametrize("accepted", [0, 2, 4])
def test_draft_tokens_are_accepted_up_to_the_first_wrong_one(pair: Pair, accepted: int, sampling: Sampling) -> None:
    _, runner = pair
    expected = decode(runner, sequence(pair, 0, sampling=sampling), 10)
    drafting = sequence(pair, 1, sampling=sampling)
    compute(runner, (drafting, drafting.pending))
    draft = expected[1:5]
    if accepted < len(draft):
        draft[accepted] = (draft[accepted] + 1) % 200
    drawn = run_draft(runner, drafting, draft)
    assert drawn == expected[1 : accepted + 2]
    drafting.tokens += drawn
    drafting.computed += len(drawn)
    runner.cache.remove(Removal(1, drafting.computed))
    assert decode(runner, drafting, 3) == expected[accepted + 2 :][:3]


def run_draft(runner: Runner, drafting: Sequence, draft: list[int]) -> list[int]:
    chunk = Chunk(drafting, 1, sample=True, draft=tuple(draft))
    runner.arm()
    (drawn,) = runner.run(StepPlan((chunk,), decode=True)).draws
    return [token.id for token in drawn if isinstance(token, Token)]
