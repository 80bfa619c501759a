"""A heap from which items can be removed: its order, against sorting, and its memory."""

from hypothesis import given
from hypothesis import strategies as st

from engine.core.fair.keyed_heap import KeyedHeap
from tests.engine.work import blocks

changes = st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(-3, 3)))


@given(changes)
def test_items_are_in_the_order_of_their_keys_and_then_of_arrival(changes: list[tuple[int, int | None]]) -> None:
    heap: KeyedHeap[int] = KeyedHeap()
    expected: dict[int, int] = {}
    for item, key in changes:
        assert heap.discard(item) is (expected.pop(item, None) is not None)
        if key is not None:
            heap.put(item, key)
            expected[item] = key
        ordered = sorted(expected, key=expected.__getitem__)
        assert heap.ordered() == ordered
        assert heap.first == next(iter(ordered), None)
        assert len(heap) == len(ordered)
        assert all((item in heap) is (item in expected) for item in range(10))


def test_removed_items_leave_no_memory_behind() -> None:
    heap: KeyedHeap[int] = KeyedHeap()
    for item in range(100):
        heap.put(item, 0)

    def come_and_go(times: int) -> None:
        for item in range(1000, 1000 + times):
            heap.put(item, item)
            heap.discard(item)

    come_and_go(1000)
    before = blocks()
    come_and_go(10_000)
    assert blocks() - before < 1000
    assert heap.ordered() == list(range(100))
