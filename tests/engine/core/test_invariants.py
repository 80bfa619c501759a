"""Random requests, cancels and passes: the invariants hold in any order."""

import sys
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from engine.core.window import ContextWindow
from engine.events import Failed, Finished, Released, Started
from engine.prompt import PromptText
from engine.request import GenerationRequest, Sampling
from engine.testing.fake_model import FakeModel, adapted, letters
from engine.testing.fake_runner import FakeRunner
from tests.engine.driver import Driver, bytes_of, continuation, direct, request
from tests.repeat import TIMES, repeated

CONTEXT = 256
BEGINNINGS = ("", "ab" * 50, "ab" * 50 + "b" * 40)
prompts = st.builds(str.__add__, st.sampled_from(BEGINNINGS), st.text(alphabet="ab", min_size=1, max_size=60))


class Engine(RuleBasedStateMachine):
    """A small engine, with or without enough cells for all slots."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(FakeModel(slots=3, context=CONTEXT), store_budget=10**6, on_disk=True)
        self.asked: dict[int, GenerationRequest] = {}
        self.cancelled: set[int] = set()

    @rule(
        capacity=st.none() | st.integers(230, 500),
        can_trim=st.booleans(),
        windowed=st.booleans(),
        drops_steps=st.booleans(),
        rewinds=st.booleans(),
        slots=st.integers(1, 5),
        store=st.sampled_from([0, bytes_of(140), 3 * bytes_of(200), 10**6]),
        room=st.sampled_from([sys.maxsize, sys.maxsize, 300]),
        on_disk=st.booleans(),
        pool=st.none() | st.integers(256, 700),
        shifts=st.booleans(),
        ahead=st.booleans(),
    )
    @precondition(lambda self: not self.asked)
    def start(
        self,
        *,
        capacity: int | None,
        can_trim: bool,
        windowed: bool,
        drops_steps: bool,
        rewinds: bool,
        slots: int,
        store: int,
        room: int,
        on_disk: bool,
        pool: int | None,
        shifts: bool,
        ahead: bool,
    ) -> None:
        pool = None if shifts else pool  # llama.cpp would move shared cells in all slots
        can_trim = shifts or (can_trim and not (windowed and pool))  # windows are never full-size in a unified cache
        traits: dict[str, Any] = {"can_trim": can_trim, "windowed": windowed, "max_draft": 15 if can_trim else 3}
        traits["drops_steps"] = drops_steps and not can_trim
        model = FakeModel(slots=slots, context=CONTEXT, pool=pool, shifts=shifts, **traits)
        runner = FakeRunner(model, capacity=None if pool else capacity, rewinds=rewinds)
        self.driver = Driver(
            model, runner, store_budget=store, rewinds=rewinds, on_disk=on_disk, ahead=ahead, key=self.driver.key
        )
        self.driver.run.cache.room = room

    @rule(
        target=keys,
        texts=st.lists(prompts, min_size=1, max_size=2),
        turns=st.sampled_from([(), (100,), (70, 140)]),
        n=st.integers(1, 3),
        max_tokens=st.integers(0, 12) | st.just(CONTEXT),
        foreseen=st.booleans(),
        fields=st.fixed_dictionaries(
            {
                "stop": st.sampled_from([(), ("a",), ("bc", "x")]),
                "stop_tokens": st.sampled_from([(), (ord("e"), ord("m"))]),
                "stream": st.booleans(),
                "cache_prompt": st.sampled_from([True, True, False]),
                "cache_partition": st.sampled_from(["", "", "other"]),
                "adapters": st.sampled_from([None, None, ((0, 1.0),), ((1, 0.5), (0, 1.0))]),
                "client": st.sampled_from(["", "", "other"]),
                "weight": st.sampled_from([1.0, 0.25]),
                "priority": st.sampled_from([None, -1, 1]),
                "echo": st.booleans(),
                "logprobs": st.sampled_from([None, None, None, 2]),
                "min_tokens": st.integers(0, 4),
                "speculative": st.sampled_from([None, True, True]),
                "slot": st.sampled_from([None, None, 0]),
                "keep": st.sampled_from([0, 5, -1]),
                "discard": st.sampled_from([0, 7]),
            }
        ),
    )
    def add(
        self, texts: list[str], turns: tuple[int, ...], n: int, max_tokens: int, foreseen: bool, fields: dict[str, Any]
    ) -> int:
        if not self.driver.model.info.shifts:
            max_tokens = min(max_tokens, CONTEXT - max(map(len, texts)))
        sampling = Sampling(min_tokens=min(fields.pop("min_tokens"), max_tokens))
        fields = {**fields, "n": n, "max_tokens": max_tokens, "sampling": sampling}
        if foreseen:
            fields["prediction"] = self.expected(request(texts[0], **fields), texts[0], max_tokens)
        cut = [PromptText(text, (), tuple(at for at in turns if at < len(text))) for text in texts]
        key = self.driver.add(*cut, **fields)
        self.asked[key] = request(*texts, **fields)
        return key

    @rule(key=consumes(keys))
    def cancel(self, key: int) -> None:
        self.cancelled.add(key)
        self.driver.cancel(key)

    @rule()
    def step(self) -> None:
        self.driver.step()

    @rule(key=consumes(keys), abort=st.booleans())
    def cancel_during_a_pass(self, key: int, abort: bool) -> None:
        self.cancelled.add(key)

        def hang_up() -> None:
            self.driver.cancel(key)
            if abort and self.driver.scheduler.in_step.abandoned:
                self.driver.run.abort()

        if self.driver.step(hang_up) is None:
            self.driver.cancel(key)

    @rule(key=consumes(keys))
    def cancel_between_plan_and_pass(self, key: int) -> None:
        self.cancelled.add(key)
        self.driver.step(before=lambda: self.driver.cancel(key))

    @rule(fails=st.booleans())
    def end_the_io(self, fails: bool) -> None:
        self.driver.deliver()
        self.driver.run.cache.files.fails = fails

    @rule()
    @precondition(lambda self: self.driver.run.cache.files.tokens)
    def lose_a_file(self) -> None:
        self.driver.run.cache.files.delete(min(self.driver.run.cache.files.tokens))

    @rule()
    def restart(self) -> None:
        """Go on with a new engine that has only the files."""
        self.finish()
        old = self.driver
        runner = FakeRunner(old.model, rewinds=old.rewinds)
        runner.cache.files = old.run.cache.files
        self.asked, self.cancelled = {}, set()
        self.driver = Driver(
            old.model,
            runner,
            store_budget=old.store_budget,
            rewinds=old.rewinds,
            on_disk=old.on_disk,
            ahead=old.ahead,
            key=old.key,
        )

    @invariant()
    def the_ledger_balances(self) -> None:
        self.driver.check()

    @invariant()
    def the_queue_has_each_request_once(self) -> None:
        queue = list(self.driver.scheduler.queue())
        assert len(queue) == len(set(queue))
        for key in queue:
            assert key in self.driver.scheduler
            assert key not in self.cancelled

    @invariant()
    def cells_are_those_the_ledger_knows(self) -> None:
        if self.driver.ledger.unclean:
            return
        for slot in self.driver.ledger.slots:
            known = slot.holder.tokens[: slot.holder.computed] if slot.holder else slot.cached
            assert self.driver.run.cache.cells.get(slot.seq_id, []) == known

    def teardown(self) -> None:
        self.finish()

    def finish(self) -> None:
        self.driver.drain()
        for key, asked in self.asked.items():
            self.check_outcome(key, len(asked.prompts) * asked.n)
            self.check_told(key, asked)
        metrics = self.driver.scheduler.metrics()
        assert (metrics.free, metrics.waiting, metrics.active_tokens) == (metrics.slots, 0, 0)
        assert not self.driver.run.open
        assert list(self.driver.scheduler.queue()) == []

    def check_outcome(self, key: int, choices: int) -> None:
        """Check for exactly one outcome: every choice once, or one failure, or one release, and no event after it."""
        news = [event for event in self.driver.news[key] if not isinstance(event, Started)]
        ended = [event.choice for event in news if isinstance(event, Finished)]
        assert len(ended) == len(set(ended))
        releases = [event for event in news if isinstance(event, Released)]
        failures = [event for event in news if isinstance(event, Failed)]
        assert len(releases) == (key in self.cancelled)
        assert len(failures) <= 1
        if not releases and not failures:
            assert sorted(ended) == list(range(choices))
        if releases and not failures:  # one that was on its way may come after the reply to the cancel
            assert news[-1] is releases[0]

    def check_told(self, key: int, asked: GenerationRequest) -> None:
        """Check each finished choice against a model that computes each token by itself."""
        for choice in (event.choice for event in self.driver.news[key] if isinstance(event, Finished)):
            prompt = asked.prompts[choice // asked.n]
            assert isinstance(prompt, str)
            told = self.driver.text(key, choice)
            answer = told.removeprefix(prompt) if asked.echo else told
            assert told == (prompt + answer if asked.echo else answer)
            if not (asked.stop_tokens and asked.sampling.min_tokens):  # the fake may draw something else instead
                assert answer == self.expected(asked, prompt, len(answer))
            known = list((prompt + answer).encode())
            if asked.logprobs is not None and not asked.adapters and len(known) < CONTEXT:
                expected = direct(known, asked.logprobs)
                assert self.driver.details(key, choice) == expected[0 if asked.echo else len(prompt) :]

    def expected(self, asked: GenerationRequest, prompt: str, tokens: int) -> str:
        """Return the beginning of the answer to a prompt, of a model that computes each token by itself."""
        keep = len(prompt) if asked.keep < 0 else asked.keep
        window = ContextWindow(CONTEXT, keep, asked.discard) if self.driver.model.info.shifts else None
        return continuation(prompt, tokens, window, lambda known: adapted(letters(known), asked.adapters or ()))


TestEngine = repeated(Engine.TestCase)
TestEngine.settings = settings(max_examples=20 * TIMES, stateful_step_count=60)
