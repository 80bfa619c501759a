"""Behaviour of every store of conversations: its pages, its turns, and its part of the memory."""

import random
from collections.abc import Sequence
from typing import Any, TypeAlias

import pytest

from engine import RequestError
from gateway.apis.openai.conversations.store import NoTurn, TurnEnd
from gateway.apis.openai.responses.store.pages import Page
from gateway.apis.openai.responses.store.recalled import MAX_RECALLED_ITEMS
from gateway.apis.openai.stores import Stores
from gateway.middleware.errors import RefusedError
from tests.gateway.apis.openai.stores.bench import OWNER, Bench, are_known, created, gone, ids, items, response

Step: TypeAlias = Page | list[str] | str


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


async def take(stores: Stores, conversation: str, step: Step) -> Any:
    """Take a step, and return its result like `Model` does."""
    try:
        if isinstance(step, Page):
            found = await stores.conversations.page(OWNER, conversation, step)
            return [item.id for item in found.items], found.has_more
        if isinstance(step, list):
            await stores.conversations.add(OWNER, conversation, items(*step))
        else:
            await stores.conversations.remove(OWNER, conversation, step)
    except (RequestError, RefusedError):
        return None if isinstance(step, Page) else False
    return True


async def every_page_is_that_of_a_list(bench: Bench, steps: Sequence[Step]) -> None:
    """Take steps, each of which is a page to read, items to add, or an item to remove."""
    stores, model = await bench.open(), Model()
    conversation = await created(stores)
    for step in steps:
        if isinstance(step, Page):
            expected: Any = model.page(step)
        else:
            expected = model.add(step) if isinstance(step, list) else model.remove(step)
        assert await take(stores, conversation, step) == expected
    assert await ids(stores, conversation) == model.ids
    await stores.conversations.delete(OWNER, conversation)
    assert await bench.is_empty()


async def pages_that_follow_each_other_have_each_item_once(bench: Bench) -> None:
    stores, names = await bench.open(), [str(number) for number in range(23)]
    conversation = await created(stores, *names)
    read: list[str] = []
    page = Page(limit=5, order="asc")
    while (found := await stores.conversations.page(OWNER, conversation, page)).has_more:
        read += [item.id for item in found.items]
        page = Page(limit=5, order="asc", after=read[-1])
    assert [*read, *(item.id for item in found.items)] == names


async def a_turn_adds_its_items_and_no_other_may_begin_meanwhile(bench: Bench) -> None:
    stores = await bench.open()
    conversation = await created(stores, "a")
    turn, history = await stores.conversations.begin(OWNER, conversation)
    assert [item.id for item in history] == ["a"]
    for change in (
        stores.conversations.begin(OWNER, conversation),
        stores.conversations.add(OWNER, conversation, items("x")),
        stores.conversations.remove(OWNER, conversation, "a"),
    ):
        with pytest.raises(RequestError) as caught:
            await change
        assert (caught.value.code, caught.value.param) == ("conversation_locked", "conversation")
    assert (await stores.conversations.set_metadata(OWNER, conversation, {"k": "v"}))["metadata"] == {"k": "v"}
    await turn.end(items("b", "c"))
    assert await ids(stores, conversation) == ["a", "b", "c"]


async def a_turn_ends_when_its_response_is_stored(bench: Bench) -> None:
    stores = await bench.open()
    conversation = await created(stores, "a")
    turn, _ = await stores.conversations.begin(OWNER, conversation)
    await stores.responses.put(OWNER, response("first"), TurnEnd(turn, items("b")))
    assert await ids(stores, conversation) == ["a", "b"]
    later, _ = await stores.conversations.begin(OWNER, conversation)
    await stores.responses.put(OWNER, response("second"), TurnEnd(turn, items("c")))
    later.abandon()
    await stores.responses.put(OWNER, response("third"), TurnEnd(later, items("d")))
    await stores.responses.put(OWNER, response("fourth"), TurnEnd(NoTurn(), items("e")))
    assert await ids(stores, conversation) == ["a", "b"]
    for name in ("first", "second", "third", "fourth"):
        assert (await stores.responses.get(OWNER, name)).can_continue


async def a_cancelled_turn_changes_nothing_and_ends_no_later_one(bench: Bench) -> None:
    stores = await bench.open()
    conversation = await created(stores, "a")
    first, _ = await stores.conversations.begin(OWNER, conversation)
    await first.cancel()
    await first.end(items("b"))
    await stores.conversations.begin(OWNER, conversation)
    first.abandon()
    with pytest.raises(RequestError):
        await stores.conversations.begin(OWNER, conversation)
    assert await ids(stores, conversation) == ["a"]


async def a_turn_does_not_restore_a_deleted_conversation(bench: Bench) -> None:
    stores = await bench.open()
    conversation = await created(stores, "a")
    turn, _ = await stores.conversations.begin(OWNER, conversation)
    await stores.conversations.delete(OWNER, conversation)
    await turn.end(items("b"))
    assert await bench.is_empty()


async def the_conversations_of_others_look_unknown(bench: Bench) -> None:
    stores = await bench.open()
    conversation = await created(stores, "a")
    for call in (
        stores.conversations.get("other", conversation),
        stores.conversations.set_metadata("other", conversation, {}),
        stores.conversations.delete("other", conversation),
        stores.conversations.page("other", conversation, Page(limit=1)),
        stores.conversations.item("other", conversation, "a"),
        stores.conversations.add("other", conversation, []),
        stores.conversations.remove("other", conversation, "a"),
        stores.conversations.read("other", conversation),
        stores.conversations.begin("other", conversation),
    ):
        with pytest.raises(RefusedError) as caught:
            await call
        assert (caught.value.problem.status, caught.value.problem.code) == (404, "conversation_not_found")
    assert await ids(stores, conversation) == ["a"]


async def a_full_memory_evicts_the_least_recently_used_of_the_greediest_owner(bench: Bench) -> None:
    stores = await bench.open(max_entries=4)
    mine = await created(stores, owner="modest")
    first, second, third = [await created(stores) for _ in range(3)]
    await stores.conversations.get(OWNER, first)
    fourth = await created(stores)
    assert await are_known(bench, first, second, third, fourth) == [True, False, True, True]
    assert await are_known(bench, mine, owner="modest") == [True]


async def responses_and_conversations_share_one_memory(bench: Bench) -> None:
    stores = await bench.open(max_entries=2)
    conversation = await created(stores)
    for name in ("a", "b"):
        await stores.responses.put(OWNER, response(name))
    assert await are_known(bench, conversation) == [False]
    await created(stores)
    assert await gone(stores, "a") == "response_not_found"
    assert (await stores.responses.get(OWNER, "b")).id == "b"


async def a_conversation_that_grows_is_counted_with_its_new_size(bench: Bench) -> None:
    stores = await bench.open(max_bytes=2000)
    idle, grown = await created(stores), await created(stores)
    await stores.conversations.add(OWNER, grown, items("a", text="x" * 1000))
    assert await are_known(bench, idle) == [True]
    await stores.conversations.add(OWNER, grown, items("b", text="x" * 800))
    assert await are_known(bench, idle) == [False]
    turn, _ = await stores.conversations.begin(OWNER, grown)
    await turn.end(items("c", text="x" * 1000))
    assert await bench.is_empty()


async def the_size_of_a_conversation_is_bounded(bench: Bench) -> None:
    stores = await bench.open(max_recalled_bytes=100)
    conversation = await created(stores)
    await stores.conversations.add(OWNER, conversation, items("a", text="x" * 50))
    for owner_call in (
        stores.conversations.add(OWNER, conversation, items("b", text="x" * 50)),
        stores.conversations.create(OWNER, {}, items("a", text="x" * 100)),
    ):
        with pytest.raises(RequestError) as caught:
            await owner_call
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "items")
    turn, _ = await stores.conversations.begin(OWNER, conversation)
    await turn.end(items("b", text="x" * 50))
    with pytest.raises(RequestError) as caught:
        await stores.conversations.begin(OWNER, conversation)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "conversation")
    await stores.conversations.remove(OWNER, conversation, "a")
    await stores.conversations.begin(OWNER, conversation)


async def the_number_of_items_is_bounded(bench: Bench) -> None:
    stores = await bench.open()
    conversation = await created(stores, *map(str, range(MAX_RECALLED_ITEMS)))
    with pytest.raises(RequestError, match="more than 8192 items"):
        await stores.conversations.add(OWNER, conversation, items("one more"))


async def steps_by_chance_are_those_of_a_list(bench: Bench) -> None:
    chance = random.Random(1)
    for _ in range(bench.many // 10):
        names = [chance.sample("abcdefgh", chance.randrange(4)) for _ in range(3)]
        after = [None, *"abcdefgh"]
        pages = [
            Page(limit=chance.randrange(1, 6), order=order, after=chance.choice(after)) for order in ("asc", "desc")
        ]
        steps: list[Step] = [*names, *pages, chance.choice("abcdefgh"), *pages]
        chance.shuffle(steps)
        await every_page_is_that_of_a_list(bench, steps)


CASES = (
    pages_that_follow_each_other_have_each_item_once,
    a_turn_adds_its_items_and_no_other_may_begin_meanwhile,
    a_turn_ends_when_its_response_is_stored,
    a_cancelled_turn_changes_nothing_and_ends_no_later_one,
    a_turn_does_not_restore_a_deleted_conversation,
    the_conversations_of_others_look_unknown,
    a_full_memory_evicts_the_least_recently_used_of_the_greediest_owner,
    responses_and_conversations_share_one_memory,
    a_conversation_that_grows_is_counted_with_its_new_size,
    the_size_of_a_conversation_is_bounded,
    the_number_of_items_is_bounded,
    steps_by_chance_are_those_of_a_list,
)
