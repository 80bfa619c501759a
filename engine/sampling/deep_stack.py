"""Work of native code that recurses deeply, on a stack that is large enough."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

STACK = 256 * 2**20
"""Bytes of the stack. Only pages that are used take memory. An overflow would end the process."""
_starting = threading.Lock()


def on_deep_stack(work: Callable[[], T]) -> T:
    """Run work in a thread of its own with a large stack, and return its result or raise its exception."""
    with ThreadPoolExecutor(1) as executor:
        with _starting:
            before = threading.stack_size(STACK)
            try:
                future = executor.submit(work)
            finally:
                threading.stack_size(before)
        return future.result()
