"""The simulation: the same seed gives the same figures, and its parts do what their originals do."""

from functools import cache
from itertools import islice
from random import Random

import pytest

from tests.benchmarks.routing.policies import POLICIES, BoundedHashing, RayPrefixTree
from tests.benchmarks.routing.replica import Job, Machine, Prefix, Replica, step_seconds
from tests.benchmarks.routing.simulation import Scenario, simulate
from tests.benchmarks.routing.workload import Conversation, Workload, conversations

SMALL = Scenario(replicas=4, warm_up=30, seconds=30, drain=10)


@cache
def conversation(number: int) -> Conversation:
    return Conversation(number, number, 64, [])


def job_of(number: int) -> Job:
    return Job(Prefix(conversation(number), 640), 10, 0.0)


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_seed_gives_the_same_figures(name: str) -> None:
    outcome = simulate(SMALL, POLICIES[name])
    assert outcome == simulate(SMALL, POLICIES[name])
    assert outcome.waits
    assert 0 <= outcome.reused < outcome.started


def test_turns_of_a_conversation_begin_alike() -> None:
    for one in islice(conversations(Workload(), 1), 50):
        for (earlier, answer, _), (later, _, _) in zip(one.turns, one.turns[1:], strict=False):
            assert later > earlier + answer
            assert one.prompt_blocks(later)[: earlier // 64] == one.prompt_blocks(earlier)


def test_a_step_takes_what_was_measured() -> None:
    assert [step_seconds(rows) for rows in (0, 8, 12)] == pytest.approx([0, 0.130, 0.139])


def test_a_replica_computes_a_prompt_then_decodes_and_keeps_the_cells() -> None:
    replica = Replica(Machine(slots=1, store=0, queue=1))
    job, again, refused = job_of(1), job_of(1), job_of(2)
    assert [replica.add(one) for one in (job, again, refused)] == [True, True, False]
    ended: list[Job] = []
    while len(ended) < 2:
        ended += replica.advance(replica.next_event)
    assert ended == [job, again]
    assert (job.cached, again.cached) == (0, 639)
    assert [prefix.tokens for prefix in replica.held()] == [650]
    assert job.first is not None
    assert job.first < replica.now


def test_an_evicted_prefix_is_stored_within_the_budget() -> None:
    replica = Replica(Machine(slots=1, store=1500, queue=9))
    for number in range(4):
        replica.add(job_of(number))
    while replica.requests:
        replica.advance(replica.next_event)
    assert [prefix.conversation.id for prefix in replica.held()] == [3, 1, 2]


def test_bounded_hashing_goes_on_along_the_ring() -> None:
    policy = BoundedHashing(4, Random(1))
    chosen = {policy.choose(job_of(1), (), 0) for _ in range(8)}
    assert max(policy.open) == 3
    assert len(chosen) == 3


def test_rays_rules_prefer_what_was_sent_then_small_trees_then_balance() -> None:
    policy = RayPrefixTree(3, Random(1), imbalanced=1)
    first = policy.choose(job_of(1), (1, 2, 3), 0)
    assert policy.choose(job_of(1), (1, 2, 3, 4), 0) == first
    assert policy.choose(job_of(2), (9,), 0) != first
    assert policy.load(first) == 2
    assert {policy.choose(job_of(1), (1, 2, 3, 4), 0) for _ in range(2)} != {first}
