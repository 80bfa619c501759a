from collections.abc import Sequence
from random import Random

import pytest

from gateway.routing.report import HeldBlocks
from gateway.routing.router import LoadBound, PrefixRouter, Routed

PROMPT = (1, 2, 3, 4)
Router = PrefixRouter[str]


def router_of(*replicas: str, slots: int = 2, bound: LoadBound | None = None) -> Router:
    router = Router(Random(0), bound, linger=10)
    router.update_replicas(dict.fromkeys(replicas, slots))
    return router


def report(router: Router, replica: str, blocks: Sequence[int], epoch: int = 1) -> None:
    log = HeldBlocks(epoch)
    log.update(set(blocks))
    assert router.receive(replica, log.report())


def test_the_longest_held_prefix_wins() -> None:
    router = router_of(*"abcdef")
    report(router, "b", PROMPT[:2])
    report(router, "c", PROMPT[:3])
    routed = router.route(PROMPT, 0)
    assert (routed.replica, routed.held) == ("c", 3)


def test_a_much_busier_holder_is_left_for_the_next_longest() -> None:
    router = router_of(*"abcdef")
    report(router, "b", PROMPT[:2])
    report(router, "c", PROMPT[:3])
    router.count("c", 2)
    assert router.route(PROMPT, 0).replica == "b"


def test_the_bound_follows_the_mean() -> None:
    router = router_of(*"ab", slots=1, bound=LoadBound(free=1, ratio=1.5))
    report(router, "a", PROMPT)
    router.count("b", 4)
    router.count("a", 4)
    assert router.route(PROMPT, 0).replica == "a"
    router.count("a", 13)
    assert router.route(PROMPT, 0).replica == "b"


def test_without_a_held_prefix_the_less_busy_of_two_is_chosen() -> None:
    router = router_of(*"ab", slots=4)
    assert {router.route(PROMPT[:0], 0).replica for _ in range(2)} == {"a", "b"}
    router.count("a", 5)
    assert router.route((), 0).replica == "b"


def test_load_is_relative_to_slots() -> None:
    router = Router(Random(0))
    router.update_replicas({"small": 1, "large": 8})
    router.count("small", 1)
    router.count("large", 4)
    assert router.route((), 0).replica == "large"


def test_a_request_that_another_replica_has_taken_counts_there() -> None:
    router = router_of("a", "b")
    report(router, "b", PROMPT[:2])
    first = router.route(PROMPT, 0)
    assert first.replica == "b"
    moved = router.move(first, "a")
    assert (moved.replica, moved.held, router.holders(4)) == ("a", 0, ["a"])
    assert router.move(moved, "gone") is router.move(moved, "a") is moved
    assert router.route((), 0).replica == "b"
    assert (router.held("a"), router.held("b")) == (4, 2)


def test_others_requests_add_to_its_own() -> None:
    router = router_of("a", "b", slots=4)
    report(router, "a", PROMPT)
    router.route(PROMPT, 0)
    router.count_others("a", 3)
    assert router.route(PROMPT, 0).replica == "b"


def test_a_routed_prompt_counts_as_held_until_it_lingers_no_more() -> None:
    router = router_of(*"abcdef")
    first = router.route(PROMPT, 0)
    second = router.route(PROMPT, 0)
    assert (second.replica, second.held) == (first.replica, 4)
    router.end(first, 100)
    router.end(second, 100)
    assert router.holders(PROMPT[0]) == [first.replica]
    router.end(router.route((9,), 110), 110)
    assert not router.holders(PROMPT[0])


def test_a_report_holds_longer_than_the_request() -> None:
    router = router_of(*"abcdef")
    routed = router.route(PROMPT, 0)
    report(router, routed.replica, PROMPT[:2])
    router.end(routed, 0)
    assert router.route(PROMPT, 99).held == 2


def test_what_was_dropped_is_held_no_more() -> None:
    router, log = router_of(*"ab"), HeldBlocks(1)
    log.update({1, 2, 3})
    assert router.receive("a", log.report())
    log.update({1, 3})
    assert router.receive("a", log.report(1))
    assert [list(router.holders(block)) for block in (1, 2, 3)] == [["a"], [], ["a"]]
    assert router.known("a") == (1, 2)


def test_a_gap_is_refused_and_closed_by_a_complete_report() -> None:
    router, log = router_of("a"), HeldBlocks(1)
    for last in (50, 51, 52):
        log.update(set(range(last)))
    assert not router.receive("a", log.report(2))
    assert not router.holders(0)
    assert router.receive("a", log.report())
    assert router.holders(51)


def test_a_late_report_of_an_earlier_process_changes_nothing() -> None:
    router = router_of("a")
    report(router, "a", [5], epoch=2)
    report(router, "a", [6], epoch=1)
    assert router.holders(5)
    assert not router.holders(6)


def test_a_replica_that_leaves_is_forgotten_with_its_requests() -> None:
    router = router_of(*"ab", slots=1)
    report(router, "a", PROMPT)
    routed = [router.route(PROMPT, 0), router.route((), 0)]
    router.remove("a")
    assert not router.holders(1)
    router.update_replicas({"a": 1, "b": 1})
    for one in routed:
        router.end(one, 0)
    assert router.route(PROMPT, 99).held == 0
    assert router.replicas == {"a", "b"}


def test_replicas_that_cannot_take_a_request_are_left_out() -> None:
    router = router_of(*"ab")
    report(router, "a", PROMPT)
    assert router.route(PROMPT, 0, without={"a"}).replica == "b"
    with pytest.raises(LookupError):
        router.route(PROMPT, 0, without={"a", "b"})


def test_an_unknown_replica_is_ignored() -> None:
    router = router_of("a")
    report(router, "gone", PROMPT)
    router.count("gone", 1)
    router.remove("gone")
    assert not router.holders(1)


def test_a_conversation_stays_while_others_come() -> None:
    router = router_of(*"abcdefgh", slots=4)
    turns: list[Routed[str]] = []
    for turn in range(1, 20):
        others = [router.route((100 * turn + index,), turn) for index in range(6)]
        turns.append(router.route(range(10_000, 10_000 + turn), turn))
        for one in [*others, turns[-1]]:
            router.end(one, turn)
    assert len({turn.replica for turn in turns}) == 1
