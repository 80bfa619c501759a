"""Numbers in memory as arrays."""

import numpy as np
import pytest

from engine.llama.views import view

MEMORY = np.arange(12, dtype=np.int32)
ADDRESS = MEMORY.ctypes.data


def test_a_view_has_the_numbers_where_they_are() -> None:
    assert view(ADDRESS, (3, 4), "=i4").tolist() == MEMORY.reshape(3, 4).tolist()
    assert view(ADDRESS, (3, 2), "=i4", strides=(16, 4)).tolist() == [[0, 1], [4, 5], [8, 9]]
    assert view(ADDRESS, (2,), "=i4").ctypes.data == ADDRESS


def test_only_a_writable_view_changes_them() -> None:
    own = np.zeros(2, np.float32)
    view(own.ctypes.data, (2,), "=f4", writable=True)[1] = 7
    assert own.tolist() == [0, 7]
    with pytest.raises(ValueError, match="read-only"):
        view(own.ctypes.data, (2,), "=f4")[0] = 1
