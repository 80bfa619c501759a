"""The search for cells to reuse finds what a comparison with every source finds."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine.core.kv.prefix import Prefix
from engine.core.kv.prefix_store import PrefixStore
from engine.core.kv.reuse import ReuseFinder
from engine.core.kv.slot import Slot
from engine.testing.fake_model import FakeModel

TRAITS = FakeModel().traits
TOKENS = st.lists(st.integers(0, 1), max_size=6)
PARTITIONS = st.sampled_from(["a", "a", "b", None])


@given(held=st.lists(st.tuples(TOKENS, PARTITIONS)), prompt=TOKENS, partition=PARTITIONS, cuts=st.booleans())
def test_the_most_cells_are_found_in_the_smallest_slot_that_holds_them(
    held: list[tuple[list[int], str | None]], prompt: list[int], partition: str | None, *, cuts: bool
) -> None:
    slots = [Slot(at, cached=tokens, partition=owner) for at, (tokens, owner) in enumerate(held)]
    wanted = Prefix([*prompt, 7], len(prompt), partition)
    shared = {slot.seq_id: slot.prefix.common(wanted) for slot in slots}
    usable = [slot for slot in slots if shared[slot.seq_id] and (cuts or shared[slot.seq_id] == slot.size)]
    expected = min(usable, key=lambda slot: (-shared[slot.seq_id], slot.size), default=None)
    finder = ReuseFinder(PrefixStore(0, int), replace(TRAITS, can_trim=cuts))
    found = finder.best_slot(slots, wanted)
    assert (found and (found.source, found.tokens)) == (expected and (expected, shared[expected.seq_id]))
