"""Random requests, cancels and passes: whatever happens, in whatever order, what must hold holds."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from engine.core.fake import FakeModel, FakeRunner
from engine.events import Failed, Finished, Released, Started
from tests.engine.driver import Driver

BEGINNINGS = ("", "ab" * 50, "ab" * 50 + "b" * 40)
prompts = st.builds(str.__add__, st.sampled_from(BEGINNINGS), st.text(alphabet="ab", min_size=1, max_size=60))


class Engine(RuleBasedStateMachine):
    """A small engine, with or without enough cells for all slots."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(FakeModel(slots=3, context=256))
        self.asked: dict[int, tuple[list[str], int]] = {}
        self.cancelled: set[int] = set()

    @rule(capacity=st.none() | st.integers(230, 500), trims=st.booleans(), slots=st.integers(1, 5))
    @precondition(lambda self: not self.asked)
    def start(self, capacity: int | None, trims: bool, slots: int) -> None:
        model = FakeModel(slots=slots, context=256, trims=trims)
        self.driver = Driver(model, FakeRunner(model, capacity=capacity))

    @rule(
        target=keys,
        texts=st.lists(prompts, min_size=1, max_size=2),
        n=st.integers(1, 3),
        max_tokens=st.integers(0, 12),
        stop=st.sampled_from([(), ("a",), ("bc", "x")]),
        stream=st.booleans(),
        cache=st.booleans(),
    )
    def add(self, texts: list[str], n: int, max_tokens: int, stop: tuple[str, ...], stream: bool, cache: bool) -> int:
        key = self.driver.add(*texts, n=n, max_tokens=max_tokens, stop=stop, stream=stream, cache_prompt=cache)
        self.asked[key] = (texts, n)
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
            if abort and self.driver.scheduler.abandoned:
                self.driver.run.abort()

        if self.driver.step(hang_up) is None:
            self.driver.cancel(key)

    @rule(key=consumes(keys))
    def cancel_between_plan_and_pass(self, key: int) -> None:
        self.cancelled.add(key)
        self.driver.step(before=lambda: self.driver.cancel(key))

    @invariant()
    def the_ledger_balances(self) -> None:
        self.driver.check()

    @invariant()
    def cells_are_those_the_ledger_knows(self) -> None:
        if self.driver.ledger.unclean:
            return
        for slot in self.driver.ledger.slots:
            known = slot.holder.tokens[: slot.holder.computed] if slot.holder else slot.cached
            assert self.driver.run.cells.get(slot.seq_id, []) == known

    def teardown(self) -> None:
        self.driver.drain()
        for key, (texts, n) in self.asked.items():
            self.check_outcome(key, len(texts) * n)
        figures = self.driver.scheduler.figures()
        assert (figures.free, figures.waiting, figures.active_tokens) == (figures.slots, 0, 0)
        assert not self.driver.run.open

    def check_outcome(self, key: int, choices: int) -> None:
        """Exactly one outcome: every choice once, or one failure, or one release, and nothing after it."""
        news = [event for event in self.driver.news[key] if not isinstance(event, Started)]
        ended = [event.choice for event in news if isinstance(event, Finished)]
        assert len(ended) == len(set(ended))
        releases = [event for event in news if isinstance(event, Released)]
        failures = [event for event in news if isinstance(event, Failed)]
        assert len(releases) == (key in self.cancelled)
        assert len(failures) <= 1
        if not releases and not failures:
            assert sorted(ended) == list(range(choices))
        if releases:
            assert news[-1] is releases[0]


TestEngine = Engine.TestCase
TestEngine.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
