"""Numbers in the memory of llama.cpp as arrays of numpy."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray


def view(
    address: int | None,
    shape: tuple[int, ...],
    kind: str,
    *,
    strides: tuple[int, ...] | None = None,
    writable: bool = False,
) -> NDArray[Any]:
    """Return an array without a copy. It is valid as long as the memory.

    `numpy.ctypeslib` would make types for each shape, and keep them for ever.

    Args:
        address: address of the first number.
        shape: shape of the array.
        kind: type of the numbers, as in numpy's array interface.
        strides: bytes from one number to the next in each dimension; None if there are none between them.
        writable: whether the numbers may be changed.
    """
    array = {"data": (address, not writable), "shape": shape, "strides": strides, "typestr": kind, "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=array))
