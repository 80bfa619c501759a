"""The store of conversations: its pages, its turns, and its part of the memory."""

from collections.abc import Sequence
from typing import Any

import anyio
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import RequestError
from gateway.apis.openai.conversations.memory_store import MemoryConversations
from gateway.apis.openai.responses.encoded import EncodedItem, EncodedResponse
from gateway.apis.openai.responses.store.pages import Page
from gateway.apis.openai.responses.store.shares import Shares
from gateway.apis.openai.responses.store.store import MAX_RECALLED_ITEMS, ResponseStore
from gateway.apis.openai.responses.store.stored_response import StoredResponse
from gateway.middleware.errors import RefusedError

OWNER = "digest"
pytestmark = pytest.mark.anyio


def items(*names: str, text: str = "x") -> list[EncodedItem]:
    return [EncodedItem(name, orjson.dumps({"id": name, "text": text})) for name in names]


def store_of(max_entries: int = 100, max_bytes: int = 10**7, max_recalled_bytes: int = 10**6) -> MemoryConversations:
    shares = Shares(max_entries=max_entries, max_bytes=max_bytes)
    return MemoryConversations(shares, max_recalled_bytes=max_recalled_bytes)


async def created(store: MemoryConversations, *names: str, owner: str = OWNER) -> str:
    return (await store.create(owner, {}, items(*names)))["id"]


async def ids(store: MemoryConversations, conversation: str, owner: str = OWNER) -> list[str]:
    return [item.id for item in await store.read(owner, conversation)]


def is_known(store: MemoryConversations, conversation: str, owner: str = OWNER) -> bool:
    return (owner, conversation) in store._kept


def assert_is_empty(store: MemoryConversations) -> None:
    shares = store._shares
    assert (shares._count, shares._size, len(shares._owners), len(store._kept)) == (0, 0, 0, 0)


class Model:
    """The items of one conversation in a plain list."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def add(self, names: Sequence[str]) -> bool:
        if len({*self.ids, *names}) < len(self.ids) + len(names):
            return False
        self.ids += names
        return True

    def remove(self, name: str) -> bool:
        if name not in self.ids:
            return False
        self.ids.remove(name)
        return True

    def page(self, page: Page) -> tuple[list[str], bool] | None:
        ordered = self.ids if page.order == "asc" else list(reversed(self.ids))
        if page.after is not None and page.after not in ordered:
            return None
        start = 0 if page.after is None else ordered.index(page.after) + 1
        end = start + page.limit
        return ordered[start:end], end < len(ordered)


NAMES = st.sampled_from("abcdefgh")
PAGES = st.builds(
    Page.model_construct,
    limit=st.integers(1, 5),
    order=st.sampled_from(["asc", "desc"]),
    after=st.none() | NAMES,
    include=st.just([]),
)
STEPS = st.lists(NAMES, max_size=3) | NAMES | PAGES


async def take(store: MemoryConversations, conversation: str, step: Any) -> Any:
    """Take a step, and return its result like `Model` does."""
    try:
        if isinstance(step, Page):
            found = await store.page(OWNER, conversation, step)
            return [item.id for item in found.items], found.has_more
        if isinstance(step, list):
            await store.add(OWNER, conversation, items(*step))
        else:
            await store.remove(OWNER, conversation, step)
    except (RequestError, RefusedError):
        return None if isinstance(step, Page) else False
    return True


@given(st.lists(STEPS, max_size=12))
def test_every_page_is_that_of_a_list(steps: list[Any]) -> None:
    async def run() -> None:
        store, model = store_of(), Model()
        conversation = await created(store)
        for step in steps:
            if isinstance(step, Page):
                expected: Any = model.page(step)
            else:
                expected = model.add(step) if isinstance(step, list) else model.remove(step)
            assert await take(store, conversation, step) == expected
        assert await ids(store, conversation) == model.ids
        await store.delete(OWNER, conversation)
        assert_is_empty(store)

    anyio.run(run)


async def test_pages_that_follow_each_other_have_each_item_once() -> None:
    store, names = store_of(), [str(number) for number in range(23)]
    conversation = await created(store, *names)
    read: list[str] = []
    page = Page(limit=5, order="asc")
    while (found := await store.page(OWNER, conversation, page)).has_more:
        read += [item.id for item in found.items]
        page = Page(limit=5, order="asc", after=read[-1])
    assert [*read, *(item.id for item in found.items)] == names


async def test_a_turn_adds_its_items_and_no_other_may_begin_meanwhile() -> None:
    store = store_of()
    conversation = await created(store, "a")
    turn, history = await store.begin(OWNER, conversation)
    assert [item.id for item in history] == ["a"]
    for change in (
        store.begin(OWNER, conversation),
        store.add(OWNER, conversation, items("x")),
        store.remove(OWNER, conversation, "a"),
    ):
        with pytest.raises(RequestError) as caught:
            await change
        assert (caught.value.code, caught.value.param) == ("conversation_locked", "conversation")
    assert (await store.set_metadata(OWNER, conversation, {"k": "v"}))["metadata"] == {"k": "v"}
    await turn.end(items("b", "c"))
    assert await ids(store, conversation) == ["a", "b", "c"]


async def test_a_cancelled_turn_changes_nothing_and_ends_no_later_one() -> None:
    store = store_of()
    conversation = await created(store, "a")
    first, _ = await store.begin(OWNER, conversation)
    first.cancel()
    await first.end(items("b"))
    await store.begin(OWNER, conversation)
    first.cancel()
    with pytest.raises(RequestError):
        await store.begin(OWNER, conversation)
    assert await ids(store, conversation) == ["a"]


async def test_a_turn_does_not_restore_a_deleted_conversation() -> None:
    store = store_of()
    conversation = await created(store, "a")
    turn, _ = await store.begin(OWNER, conversation)
    await store.delete(OWNER, conversation)
    await turn.end(items("b"))
    assert_is_empty(store)


async def test_the_conversations_of_others_look_unknown() -> None:
    store = store_of()
    conversation = await created(store, "a")
    for call in (
        store.get("other", conversation),
        store.set_metadata("other", conversation, {}),
        store.delete("other", conversation),
        store.page("other", conversation, Page(limit=1)),
        store.item("other", conversation, "a"),
        store.add("other", conversation, []),
        store.remove("other", conversation, "a"),
        store.read("other", conversation),
        store.begin("other", conversation),
    ):
        with pytest.raises(RefusedError) as caught:
            await call
        assert (caught.value.problem.status, caught.value.problem.code) == (404, "conversation_not_found")
    assert await ids(store, conversation) == ["a"]


async def test_a_full_memory_evicts_the_least_recently_used_of_the_greediest_owner() -> None:
    store = store_of(max_entries=4)
    mine = await created(store, owner="modest")
    first, second, third = [await created(store) for _ in range(3)]
    await store.get(OWNER, first)
    fourth = await created(store)
    known = [is_known(store, name) for name in (first, second, third, fourth)]
    assert known == [True, False, True, True]
    assert is_known(store, mine, owner="modest")


async def test_responses_and_conversations_share_one_memory() -> None:
    shares = Shares(max_entries=2, max_bytes=10**6)
    conversations = MemoryConversations(shares, max_recalled_bytes=10**6)
    responses = ResponseStore(shares, max_recalled_bytes=10**6)
    conversation = await created(conversations)
    for name in ("a", "b"):
        content = EncodedResponse(orjson.dumps({"id": name}), (), b"{}")
        stored = StoredResponse(
            id=name, content=content, inputs=(), previous_id=None, can_continue=True, background=False
        )
        responses.put(OWNER, stored)
    assert not is_known(conversations, conversation)
    await created(conversations)
    with pytest.raises(RefusedError):
        responses.get(OWNER, "a")
    assert responses.get(OWNER, "b").id == "b"


async def test_a_conversation_that_grows_is_counted_with_its_new_size() -> None:
    store = store_of(max_bytes=2000)
    idle, grown = await created(store), await created(store)
    await store.add(OWNER, grown, items("a", text="x" * 1000))
    assert is_known(store, idle)
    await store.add(OWNER, grown, items("b", text="x" * 800))
    assert not is_known(store, idle)
    turn, _ = await store.begin(OWNER, grown)
    await turn.end(items("c", text="x" * 1000))
    assert_is_empty(store)


async def test_the_size_of_a_conversation_is_bounded() -> None:
    store = store_of(max_recalled_bytes=100)
    conversation = await created(store)
    await store.add(OWNER, conversation, items("a", text="x" * 50))
    for owner_call in (
        store.add(OWNER, conversation, items("b", text="x" * 50)),
        store.create(OWNER, {}, items("a", text="x" * 100)),
    ):
        with pytest.raises(RequestError) as caught:
            await owner_call
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "items")
    turn, _ = await store.begin(OWNER, conversation)
    await turn.end(items("b", text="x" * 50))
    with pytest.raises(RequestError) as caught:
        await store.begin(OWNER, conversation)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "conversation")
    await store.remove(OWNER, conversation, "a")
    await store.begin(OWNER, conversation)


async def test_the_number_of_items_is_bounded() -> None:
    store = store_of()
    conversation = await created(store, *map(str, range(MAX_RECALLED_ITEMS)))
    with pytest.raises(RequestError, match="more than 8192 items"):
        await store.add(OWNER, conversation, items("one more"))
