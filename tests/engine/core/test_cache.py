"""The ledger: every slot is free or held, what stays resident is reused by its tokens, and neighbours stay together."""

import pytest

from engine.core.cache import WORTH_REUSING, KVLedger, common_prefix
from engine.core.sequence import Sequence
from engine.core.step import Removal
from tests.engine.driver import request


def sequence(*tokens: int) -> Sequence:
    return Sequence(request("p"), 0, list(tokens), 8)


def hold(ledger: KVLedger, *tokens: int, reuse: bool = True) -> Sequence:
    leased = sequence(*(tokens or (1, 2, 3)))
    ledger.lease(leased, reuse=reuse)
    return leased


def keep(ledger: KVLedger, leased: Sequence) -> None:
    leased.computed = len(leased.tokens)
    ledger.release(leased, keep=True)


def test_leases_are_dense_and_the_hole_is_filled_first() -> None:
    ledger = KVLedger(6, trims=True)
    held = [hold(ledger) for _ in range(4)]
    assert [s.seq_id for s in held] == [0, 1, 2, 3]
    ledger.release(held[1], keep=False)
    assert hold(ledger).seq_id == 1
    assert hold(ledger).seq_id == 4


def test_no_slot_is_leased_twice() -> None:
    ledger = KVLedger(1, trims=True)
    first = hold(ledger)
    with pytest.raises(IndexError):
        hold(ledger)
    ledger.release(first, keep=False)
    with pytest.raises(RuntimeError, match="not held by the sequence"):
        ledger.release(first, keep=False)


def test_a_cancelled_sequence_leaves_nothing() -> None:
    ledger = KVLedger(2, trims=True)
    leased = hold(ledger)
    leased.computed = 2
    assert ledger.active_tokens == 2
    assert ledger.release(leased, keep=False) == 2
    assert (ledger.active_tokens, ledger.free) == (2, 2), "the cells are there until they are dropped"
    assert ledger.take_removals() == (Removal(0, 0),)
    assert (ledger.active_tokens, ledger.cached_tokens) == (0, 0)
    assert ledger.take_removals() == ()


def test_a_prompt_starts_from_what_is_resident_but_computes_its_last_token() -> None:
    ledger = KVLedger(1, trims=True)
    keep(ledger, hold(ledger, 1, 2, 3, 4))
    assert ledger.cached_tokens == 4
    same = hold(ledger, 1, 2, 3, 4)
    assert (same.computed, same.cached) == (3, 3)
    assert ledger.take_removals() == (Removal(0, 3),)


def test_reuse_compares_tokens_and_can_be_refused() -> None:
    ledger = KVLedger(1, trims=True)
    keep(ledger, hold(ledger, 1, 2, 3, 4))
    other = hold(ledger, 1, 9, 3, 4)
    assert other.computed == 1
    keep(ledger, other)
    assert hold(ledger, 1, 9, 3, 4, reuse=False).computed == 0


def test_a_model_that_cannot_drop_part_of_a_sequence_reuses_only_a_whole_one() -> None:
    ledger = KVLedger(1, trims=False)
    keep(ledger, hold(ledger, 1, 2, 3))
    longer = hold(ledger, 1, 2, 3, 4)
    assert longer.computed == 3
    keep(ledger, longer)
    assert hold(ledger, 1, 2, 9).computed == 0
    assert all(removal.start == 0 for removal in ledger.take_removals())


def test_a_long_resident_prefix_outweighs_the_place() -> None:
    ledger = KVLedger(3, trims=True)
    long = list(range(WORTH_REUSING + 1))
    held = [hold(ledger), hold(ledger), hold(ledger, *long)]
    keep(ledger, held[2])
    ledger.release(held[1], keep=False)
    assert hold(ledger, *long).seq_id == 2


def test_the_least_recently_used_prefix_is_given_up_first() -> None:
    ledger = KVLedger(3, trims=True)
    a, b, c = hold(ledger, 1), hold(ledger, 2), hold(ledger, 3)
    for leased in (b, a, c):
        keep(ledger, leased)
    assert [hold(ledger, 9).seq_id for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(
    ("a", "b", "shared"),
    [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2, 4], 2), ([1], [2], 0), ([1, 2, 3], [1, 2], 2)],
)
def test_common_prefix(a: list[int], b: list[int], shared: int) -> None:
    assert common_prefix(a, b) == shared
