"""Random histories of a router and its replicas: lost, late and repeated reports, restarts, joins and leaves."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from gateway.routing.report import HeldBlocks, Report
from gateway.routing.router import PrefixRouter, Routed

NAMES = st.sampled_from("abc")
BLOCKS = 8
LINGER = 5


class RouterMachine(RuleBasedStateMachine):
    """The truth of each replica beside the router's view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.router = PrefixRouter[str](Random(0), linger=LINGER)
        self.truth = {name: HeldBlocks(1) for name in "abc"}
        self.held = dict.fromkeys("abc", frozenset[int]())
        self.epoch = 1
        self.sent: list[tuple[str, Report]] = []
        self.open: list[Routed[str]] = []
        self.now = 0.0

    @rule(names=st.sets(NAMES, min_size=1))
    def replace_replicas(self, names: set[str]) -> None:
        self.router.update_replicas(dict.fromkeys(names, 2))

    @rule(name=NAMES)
    def die(self, name: str) -> None:
        """The process ends, which the router may not know yet, and another one begins."""
        self.epoch += 1
        self.truth[name], self.held[name] = HeldBlocks(self.epoch), frozenset()
        if len(self.router.replicas) > 1:
            self.router.remove(name)

    @rule(name=NAMES, held=st.frozensets(st.integers(0, BLOCKS - 1)))
    def hold(self, name: str, held: frozenset[int]) -> None:
        self.held[name] = held
        self.truth[name].update(held)

    @rule(name=NAMES, since=st.integers(0, 10))
    def send(self, name: str, since: int) -> None:
        self.sent.append((name, self.truth[name].report(since)))

    @rule(data=st.data(), again=st.booleans())
    def receive(self, data: st.DataObject, again: bool) -> None:
        if self.sent:
            at = data.draw(st.integers(0, len(self.sent) - 1))
            self.router.receive(*(self.sent[at] if again else self.sent.pop(at)))

    @rule(length=st.integers(0, BLOCKS))
    def route(self, length: int) -> None:
        if self.router.replicas:
            self.open.append(self.router.route(range(length), self.now))

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.open:
            self.router.end(self.open.pop(data.draw(st.integers(0, len(self.open) - 1))), self.now)

    @rule(data=st.data(), name=NAMES)
    def move(self, data: st.DataObject, name: str) -> None:
        if self.open:
            at = data.draw(st.integers(0, len(self.open) - 1))
            self.open[at] = self.router.move(self.open[at], name)

    @rule(name=NAMES, requests=st.integers(0, 5))
    def count(self, name: str, requests: int) -> None:
        self.router.count(name, requests)

    @rule(seconds=st.integers(0, LINGER))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def the_index_is_the_views(self) -> None:
        views = self.router._views
        for block in range(BLOCKS):
            holders = self.router.holders(block)
            assert sorted(holders) == sorted(name for name, view in views.items() if view.holds(block))
        assert self.router._requests == sum(view.requests for view in views.values())
        assert self.router._slots == sum(view.slots for view in views.values())
        assert len(self.router._order) == len(views)

    def teardown(self) -> None:
        """After a quiet time and one complete report of each replica, every view is the truth."""
        for routed in self.open:
            self.router.end(routed, self.now)
        for name in self.router.replicas:
            known = self.router.known(name)
            if not self.router.receive(name, self.truth[name].report(known[1])):
                assert self.router.receive(name, self.truth[name].report())
        if self.router.replicas:
            self.now += LINGER
            self.router.end(self.router.route((), self.now), self.now)
        for name, view in self.router._views.items():
            assert view.blocks() == self.held[name]
            assert view.open == 0


def test_a_few_histories() -> None:
    run_state_machine_as_test(RouterMachine, settings=settings(max_examples=10, stateful_step_count=25, deadline=None))


@pytest.mark.thorough
def test_many_histories() -> None:
    many = settings(max_examples=60, stateful_step_count=50, deadline=None)
    run_state_machine_as_test(RouterMachine, settings=many)
