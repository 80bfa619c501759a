import random
from dataclasses import replace

import pytest

from engine.core.kv.compactor import Compactor
from engine.core.kv.ledger import COPIED_AT_ONCE, KVLedger
from engine.core.sequence import Sequence
from engine.testing.fake_model import FakeModel
from tests.engine.driver import request

WEIGHT_PASS = 100
"""Cells that move in the time of one."""


def crowd(slots: int, *cells: int | None, weight_pass: int = WEIGHT_PASS) -> tuple[KVLedger, list[Sequence]]:
    """Return a ledger, and the sequences in its first slots with so many cells each; None leaves a slot free."""
    ledger = KVLedger(slots, FakeModel(cells_per_weight_pass=weight_pass).traits)
    held = []
    for _ in cells:
        sequence = Sequence(request(), 0, [1, 2, 3], 8)
        ledger.lease(sequence)
        held.append(sequence)
    for sequence, count in zip(held, cells, strict=True):
        if count is None:
            ledger.release(sequence, keep=False)
        else:
            sequence.computed = count
    ledger.take_changes()
    return ledger, [sequence for sequence, count in zip(held, cells, strict=True) if count is not None]


def places(rows: list[Sequence]) -> list[int]:
    return [row.seq_id for row in rows]


def test_neighbours_stay_where_they_are() -> None:
    ledger, rows = crowd(6, None, 5, 5, 5)
    Compactor(ledger).gather(rows)
    assert ledger.take_changes() == ()


def test_a_short_sequence_fills_a_gap_at_once() -> None:
    ledger, rows = crowd(6, 50, None, 50, 50)
    Compactor(ledger).gather(rows)
    assert sorted(places(rows)) in ([0, 1, 2], [1, 2, 3])


def test_the_cheapest_moves_are_made() -> None:
    ledger, rows = crowd(6, 20, None, 60, 60)
    Compactor(ledger).gather(rows)
    assert places(rows) == [1, 2, 3]
    ledger, rows = crowd(6, 60, None, 60, 20)
    Compactor(ledger).gather(rows)
    assert places(rows) == [0, 2, 1]


def test_a_long_sequence_moves_when_the_gap_has_cost_as_much() -> None:
    ledger, rows = crowd(4, 350, None, 350)
    compactor = Compactor(ledger)
    for _ in range(3):
        compactor.gather(rows)
        assert places(rows) == [0, 2]
    compactor.gather(rows)
    assert places(rows) == [0, 1]


def test_the_cost_of_a_gap_is_reset_once_it_is_closed() -> None:
    ledger, rows = crowd(4, 350, None, 350)
    compactor = Compactor(ledger)
    for _ in range(3):
        compactor.gather(rows)
    compactor.gather(rows[:1])
    compactor.gather(rows)
    assert places(rows) == [0, 2]


def test_the_gaps_of_each_set_of_adapters_count_for_themselves() -> None:
    """A set that has no gap does not reset what the gap of another one has cost."""
    ledger, held = crowd(5, 350, None, 350, 5, 5)
    for other in held[2:]:
        other.adapters = ((0, 1.0),)
    compactor = Compactor(ledger)
    for _ in range(4):
        assert places(held[:2]) == [0, 2]
        compactor.gather(held[:2])
        compactor.gather(held[2:])
    assert places(held[:2]) == [0, 1]


def test_a_prefill_between_the_decode_rows_gives_way_to_them() -> None:
    ledger, held = crowd(3, 10, 20, 10)
    Compactor(ledger).gather([held[0], held[2]])
    assert abs(held[0].seq_id - held[2].seq_id) == 1
    assert sorted(places(held)) == [0, 1, 2]


@pytest.mark.parametrize("named", range(3))
def test_a_sequence_keeps_the_slot_that_its_request_names_also_beside_the_rows(named: int) -> None:
    ledger, held = crowd(3, 10, 20, 10)
    held[named].request = request(slot=named)
    for _ in range(3):
        Compactor(ledger).gather([held[0], held[2]])
    assert places(held) == [0, 1, 2]


def test_moves_before_one_pass_are_bounded() -> None:
    ledger, rows = crowd(8, *(COPIED_AT_ONCE, None) * 2, COPIED_AT_ONCE, weight_pass=4 * COPIED_AT_ONCE)
    compactor = Compactor(ledger)
    compactor.gather(rows)
    assert sum(before != now for before, now in zip([0, 2, 4], places(rows), strict=True)) == 1
    compactor.gather(sorted(rows, key=lambda row: row.seq_id))
    assert max(places(rows)) - min(places(rows)) == 2


@pytest.mark.parametrize("seed", range(20))
def test_no_other_neighbouring_slots_cost_less(seed: int) -> None:
    chance = random.Random(seed)
    cells = [chance.choice([None, chance.randrange(1, 90)]) for _ in range(12)]
    ledger, rows = crowd(16, *cells, weight_pass=10_000)
    before = {row: row.seq_id for row in rows}
    Compactor(ledger).gather(rows)
    assert sorted(places(rows)) == list(range(min(places(rows)), min(places(rows)) + len(rows)))
    windows = [range(start, start + len(rows)) for start in range(16 - len(rows) + 1)]
    costs = [sum(16 + row.computed for row in rows if before[row] not in window) for window in windows]
    assert sum(16 + row.computed for row in rows if row.seq_id != before[row]) == min(costs)


@pytest.mark.parametrize(("idle_rows", "idle_cells", "bridged"), [(2, 30, True), (1, 30, False), (2, 29, False)])
def test_a_gap_with_idle_rows_costs_nothing(idle_rows: int, idle_cells: int, *, bridged: bool) -> None:
    ledger, rows = crowd(8, 20, 30, None, 20, weight_pass=1000)
    ledger.traits = replace(ledger.traits, idle_rows=idle_rows, idle_cells=idle_cells)
    apart = [rows[0], rows[2]]
    Compactor(ledger, bridges=True).gather(apart)
    assert (places(apart) == [0, 3]) == bridged
    Compactor(ledger).gather(apart)
    assert abs(apart[0].seq_id - apart[1].seq_id) == 1
