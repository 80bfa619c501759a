"""The fake KV cache: refuses changes that the cells of a model would not survive."""

from contextlib import nullcontext

import pytest

from engine.core.kv.cell_changes import Copy, Forget, Removal, Restore, Rewind, Save
from engine.testing.fake_cache import FakeCache
from engine.testing.fake_model import FakeModel


def test_only_existing_cells_are_saved_and_restored() -> None:
    cache = FakeCache(FakeModel(can_trim=False).traits, rewinds=True)
    cache.cells[1] = [1, 2, 3]
    assert cache.save(Save(1, 1))
    for wrong in (Save(1, 1), Save(2, 0)):
        with pytest.raises(RuntimeError, match="to save"):
            cache.save(wrong)
    for missing in (Restore(2, 0, 3), Restore(1, 0, 4), Restore(1, 0, 2)):
        with pytest.raises(RuntimeError, match="to restore"):
            cache.restore(missing)
    cache.restore(Restore(1, 0, 3))
    assert cache.cells[0] == [1, 2, 3]
    cache.room = 5
    assert not cache.save(Save(3, 0))


def test_a_slot_is_rolled_back_only_to_where_it_was() -> None:
    cache = FakeCache(FakeModel(can_trim=False).traits, rewinds=True)
    cache.cells = {0: [1, 2, 3], 1: [1, 2, 3, 4], 2: [1, 2, 9]}
    assert cache.save(Save(1, 0, partial=True))
    for wrong in (Rewind(2, 1, 3), Rewind(1, 1, 2), Rewind(1, 2, 3), Rewind(1, 3, 3)):
        with pytest.raises(RuntimeError, match="never was"):
            cache.rewind(wrong)
    cache.rewind(Rewind(1, 1, 3))
    assert cache.cells[1] == [1, 2, 3]
    cache.forget(Forget(1))
    with pytest.raises(RuntimeError, match="never was"):
        cache.rewind(Rewind(1, 1, 3))


@pytest.mark.parametrize("model", [FakeModel(), FakeModel(can_trim=False)], ids=["plain", "recurrent"])
def test_a_model_without_partial_states_has_no_checkpoints_of_cells(model: FakeModel) -> None:
    cache = FakeCache(model.traits, rewinds=False)
    cache.cells[0] = [1, 2, 3]
    with pytest.raises(RuntimeError, match="no partial states"):
        cache.save(Save(1, 0, partial=True))


def test_copies_of_windows_cannot_be_cut_but_what_is_computed_behind_them() -> None:
    cache = FakeCache(FakeModel(windowed=True).traits, rewinds=True)
    cache.cells[0] = [1, 2, 3]
    with pytest.raises(RuntimeError, match="to copy"):
        cache.copy(Copy(0, 1, 2))
    cache.copy(Copy(0, 1, 3))
    cache.cells[1] += [4, 5]
    cache.remove(Removal(1, 4))
    with pytest.raises(RuntimeError, match="cannot drop part"):
        cache.remove(Removal(1, 2))
    cache.remove(Removal(0, 2))
    assert (cache.cells[0], cache.cells[1]) == ([1, 2], [1, 2, 3, 4])


@pytest.mark.parametrize("windowed", [False, True])
def test_a_copy_takes_cells_of_its_own_where_there_are_windows(windowed: bool) -> None:
    cache = FakeCache(FakeModel(pool=5, windowed=windowed, can_trim=not windowed).traits, rewinds=True)
    cache.cells[0] = [1, 2, 3]
    cache.remove(Removal(0, 3))
    with pytest.raises(RuntimeError, match="6 cells in a pool of 5") if windowed else nullcontext():
        cache.copy(Copy(0, 1, 3))
