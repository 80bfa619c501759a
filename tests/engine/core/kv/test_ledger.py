"""The ledger: every slot is free or held, resident prefixes are reused by their tokens, neighbours stay together."""

from dataclasses import replace

import pytest

from engine.core.kv.cell_changes import CellChange, Copy, Removal, Swap
from engine.core.kv.ledger import COPIED_AT_ONCE, KVLedger
from engine.core.kv.prefix import Prefix
from engine.core.model import CELLS_PER_TOKEN, WORTH_COPYING
from engine.core.sequence import Sequence
from engine.testing.fake_model import FakeModel
from tests.engine.driver import request


def hold(ledger: KVLedger, *tokens: int, reuse: bool = True) -> Sequence:
    leased = Sequence(request("p", cache_prompt=reuse), 0, list(tokens or (1, 2, 3)), 8)
    ledger.lease(leased)
    ledger.copy_prefix(leased)
    return leased


def keep(ledger: KVLedger, leased: Sequence) -> None:
    leased.computed = len(leased.tokens)
    ledger.release(leased, keep=True)


def test_leases_are_dense_and_the_hole_is_filled_first() -> None:
    ledger = KVLedger(6, FakeModel().traits)
    held = [hold(ledger) for _ in range(4)]
    assert [s.seq_id for s in held] == [0, 1, 2, 3]
    ledger.release(held[1], keep=False)
    assert hold(ledger).seq_id == 1
    assert hold(ledger).seq_id == 4


def test_no_slot_is_leased_twice() -> None:
    ledger = KVLedger(1, FakeModel().traits)
    first = hold(ledger)
    with pytest.raises(IndexError):
        hold(ledger)
    ledger.release(first, keep=False)
    with pytest.raises(RuntimeError, match="not held by the sequence"):
        ledger.release(first, keep=False)


def test_a_sequence_gets_the_slot_that_it_names_if_that_is_free() -> None:
    ledger = KVLedger(3, FakeModel().traits)
    held = [Sequence(request("p", slot=2), 0, [1, 2, 3], 8) for _ in range(2)]
    for sequence in held:
        ledger.lease(sequence)
    assert held[0].seq_id == 2
    assert held[1].seq_id in {0, 1}
    assert ledger.free == 1


def test_a_cancelled_sequence_leaves_no_cells() -> None:
    ledger = KVLedger(2, FakeModel().traits)
    leased = hold(ledger)
    leased.computed = 2
    assert ledger.active_tokens == 2
    assert ledger.release(leased, keep=False) == 2
    assert (ledger.active_tokens, ledger.free) == (2, 2), "the cells are there until they are dropped"
    assert ledger.take_changes() == (Removal(0, 0),)
    assert (ledger.active_tokens, ledger.cached_tokens) == (0, 0)
    assert ledger.take_changes() == ()


def test_a_prompt_reuses_the_resident_prefix_but_computes_its_last_token() -> None:
    ledger = KVLedger(1, FakeModel().traits)
    keep(ledger, hold(ledger, 1, 2, 3, 4))
    assert ledger.cached_tokens == 4
    same = hold(ledger, 1, 2, 3, 4)
    assert (same.computed, same.cached) == (3, 3)
    assert ledger.take_changes() == (Removal(0, 3),)


def test_reuse_compares_tokens_and_can_be_refused() -> None:
    ledger = KVLedger(1, FakeModel().traits)
    keep(ledger, hold(ledger, 1, 2, 3, 4))
    other = hold(ledger, 1, 9, 3, 4)
    assert other.computed == 1
    keep(ledger, other)
    assert hold(ledger, 1, 9, 3, 4, reuse=False).computed == 0


def test_a_model_that_cannot_drop_part_of_a_sequence_reuses_only_a_whole_one() -> None:
    ledger = KVLedger(1, FakeModel(can_trim=False).traits)
    keep(ledger, hold(ledger, 1, 2, 3))
    longer = hold(ledger, 1, 2, 3, 4)
    assert longer.computed == 3
    keep(ledger, longer)
    assert hold(ledger, 1, 2, 9).computed == 0
    assert all(isinstance(change, Removal) and change.start == 0 for change in ledger.take_changes())


LONG = list(range(100, 100 + WORTH_COPYING + 1))


def test_a_resident_prefix_elsewhere_is_copied_to_where_neighbours_are() -> None:
    ledger = KVLedger(4, FakeModel().traits)
    held = [hold(ledger), hold(ledger), hold(ledger), hold(ledger, *LONG)]
    keep(ledger, held[3])
    ledger.release(held[1], keep=False)
    ledger.take_changes()
    again = hold(ledger, *LONG)
    assert (again.seq_id, again.computed, again.cached) == (1, WORTH_COPYING, WORTH_COPYING)
    assert ledger.take_changes() == (Copy(3, 1, WORTH_COPYING),)
    assert ledger.cached_tokens == len(LONG)


def test_the_prefix_of_a_running_neighbour_is_copied_as_far_as_it_is_computed() -> None:
    ledger = KVLedger(2, FakeModel().traits)
    first = hold(ledger, *LONG)
    first.computed = WORTH_COPYING
    assert hold(ledger, *LONG, 7).computed == WORTH_COPYING
    assert ledger.take_changes() == (Copy(0, 1, WORTH_COPYING),)


def test_cells_of_private_prompts_are_not_shared() -> None:
    ledger = KVLedger(3, FakeModel().traits)
    private = hold(ledger, *LONG, reuse=False)
    private.computed = len(LONG)
    public = hold(ledger, *LONG)
    assert public.computed == 0
    public.computed = len(LONG)
    assert hold(ledger, *LONG, reuse=False).computed == 0


def test_a_short_prefix_elsewhere_is_computed_again() -> None:
    ledger = KVLedger(2, FakeModel().traits)
    hold(ledger, *LONG).computed = WORTH_COPYING - 1
    assert hold(ledger, *LONG).computed == 0


def test_part_of_a_neighbour_is_not_copied_where_parts_cannot_be_dropped() -> None:
    ledger = KVLedger(3, FakeModel(can_trim=False).traits)
    first = hold(ledger, *LONG)
    first.computed = len(LONG)
    assert hold(ledger, *LONG).computed == 0
    assert hold(ledger, *LONG, 7).computed == len(LONG)


def test_a_short_part_of_a_long_prefix_is_not_copied() -> None:
    ledger = KVLedger(2, FakeModel().traits)
    first = hold(ledger, *LONG, *range(1000, 1000 + CELLS_PER_TOKEN * 2 * WORTH_COPYING))
    first.computed = first.prompt
    assert hold(ledger, *LONG).computed == 0


@pytest.mark.parametrize(("cells_per_token", "tokens", "copied"), [(0.9, 500, 0), (1.1, 500, 500), (1.1, 99, 0)])
def test_a_slow_copy_must_pay_for_itself(cells_per_token: float, tokens: int, copied: int) -> None:
    traits = replace(FakeModel().traits, cells_per_token=cells_per_token, worth_copying=100)
    ledger = KVLedger(2, traits)
    first = hold(ledger, *range(tokens + 1))
    first.computed = tokens
    assert hold(ledger, *range(tokens), 1000, 1001).computed == copied


def test_all_cached_cells_can_be_given_up() -> None:
    ledger = KVLedger(3, FakeModel().traits)
    keep(ledger, hold(ledger))
    assert ledger.evict()
    assert ledger.cached_tokens == 0
    assert ledger.take_changes() == (Removal(0, 0),)
    assert not ledger.evict()


def test_an_unrelated_prompt_takes_an_empty_slot_and_not_a_long_prefix() -> None:
    ledger = KVLedger(3, FakeModel().traits)
    keep(ledger, hold(ledger, *LONG))
    assert hold(ledger, LONG[0], 9).seq_id == 1, "one token in common makes no slot its own"
    assert hold(ledger, 9, reuse=False).seq_id == 2
    assert ledger.slots[0].cached == LONG


def test_a_sequence_moves_with_its_cells() -> None:
    ledger = KVLedger(4, FakeModel().traits)
    held = [hold(ledger) for _ in range(4)]
    ledger.release(held[1], keep=False)
    held[3].computed = 2
    ledger.move(ledger.slots[3], ledger.slots[1])
    assert (held[3].seq_id, held[3].computed, ledger.free) == (1, 2, 1)
    assert ledger.take_changes() == (Removal(1, 0), Copy(3, 1, 2), Removal(3, 0))


def test_a_sequence_without_cells_moves_without_a_copy() -> None:
    ledger = KVLedger(2, FakeModel().traits)
    moved = hold(ledger)
    ledger.move(ledger.slots[0], ledger.slots[1])
    assert (moved.seq_id, ledger.slots[0].holder, ledger.slots[1].holder) == (1, None, moved)
    assert ledger.take_changes() == ()


@pytest.mark.parametrize(
    ("computed", "changes"), [(1, (Swap(2, 1),)), (0, (Copy(1, 2, 3), Removal(1, 0)))], ids=["begun", "new"]
)
def test_a_cached_prefix_in_a_free_slot_moves_the_other_way(computed: int, changes: tuple[CellChange, ...]) -> None:
    ledger = KVLedger(3, FakeModel().traits)
    held = [hold(ledger) for _ in range(3)]
    keep(ledger, held[1])
    kept, used = ledger.slots[1].prefix, ledger.slots[1].used
    held[2].computed = computed
    ledger.move(ledger.slots[2], ledger.slots[1])
    assert ledger.take_changes() == changes
    assert (held[2].seq_id, ledger.free) == (1, 1)
    assert (ledger.slots[2].prefix, ledger.slots[2].used) == (kept, used)
    assert not ledger.slots[1].cached


def test_a_prefix_that_would_take_too_long_to_move_is_given_up() -> None:
    ledger = KVLedger(3, FakeModel().traits)
    held = [hold(ledger), hold(ledger, *range(COPIED_AT_ONCE + 1)), hold(ledger)]
    keep(ledger, held[1])
    held[2].computed = 1
    ledger.take_changes()
    ledger.move(ledger.slots[2], ledger.slots[1])
    assert ledger.take_changes() == (Removal(1, 0), Copy(2, 1, 1), Removal(2, 0))
    assert ledger.cached_tokens == 0


def test_two_sequences_exchange_their_slots() -> None:
    ledger = KVLedger(2, FakeModel().traits)
    one, other = hold(ledger), hold(ledger)
    one.computed, other.computed = 1, 2
    ledger.move(ledger.slots[0], ledger.slots[1])
    assert (one.seq_id, other.seq_id, ledger.free) == (1, 0, 0)
    assert ledger.take_changes() == (Swap(0, 1),)
    other.computed = 0
    ledger.move(ledger.slots[0], ledger.slots[1])
    assert (one.seq_id, other.seq_id) == (0, 1)
    assert ledger.take_changes() == (Copy(1, 0, 1), Removal(1, 0))


def test_only_a_held_slot_can_be_moved() -> None:
    ledger = KVLedger(2, FakeModel().traits)
    with pytest.raises(RuntimeError, match="slot 0 is free"):
        ledger.move(ledger.slots[0], ledger.slots[1])


def test_the_least_recently_used_prefix_is_given_up_first() -> None:
    ledger = KVLedger(3, FakeModel().traits)
    a, b, c = hold(ledger, 1), hold(ledger, 2), hold(ledger, 3)
    for leased in (b, a, c):
        keep(ledger, leased)
    assert [hold(ledger, 9).seq_id for _ in range(2)] == [1, 0]


def test_a_prefix_that_is_copied_counts_as_used() -> None:
    ledger = KVLedger(6, FakeModel().traits)
    held = [hold(ledger), hold(ledger), hold(ledger), hold(ledger, *LONG), hold(ledger, 8), hold(ledger)]
    keep(ledger, held[3])
    keep(ledger, held[4])
    ledger.release(held[1], keep=False)
    assert hold(ledger, *LONG).seq_id == 1
    assert hold(ledger, 9).seq_id == 4


def test_a_slot_that_was_filled_counts_as_used() -> None:
    ledger = KVLedger(2, FakeModel().traits)
    for leased in (hold(ledger), hold(ledger, 7, 8)):
        keep(ledger, leased)
    ledger.vacate(ledger.slots[0])
    ledger.fill(ledger.slots[0], Prefix([4, 5], 2, ""))
    assert hold(ledger, 9).seq_id == 1


def test_a_copy_is_not_cut_where_its_window_begins_later() -> None:
    ledger = KVLedger(2, FakeModel(windowed=True).traits)
    hold(ledger, *LONG).computed = len(LONG)
    copied = hold(ledger, *LONG, 7)
    assert copied.computed == len(LONG)
    keep(ledger, copied)
    assert hold(ledger, *LONG[:-3], 9).computed == 0
