"""Behaviour of every store of responses: its contents, its eviction, and histories with deleted responses."""

import orjson
import pytest

from engine import RequestError
from gateway.apis.openai.responses.store.recalled import MAX_RECALLED_ITEMS
from gateway.middleware.errors import RefusedError
from tests.gateway.apis.openai.stores.bench import OWNER, Bench, are_known, asked, chain, found, gone, item, response


async def a_response_comes_back_as_it_was(bench: Bench) -> None:
    stores = await bench.open()
    await chain(stores, "a")
    stored = await stores.responses.get(OWNER, "a")
    assert stored == response("a", *asked("a"))
    assert orjson.loads(stored.content.to_json()) == {
        "id": "a",
        "status": "completed",
        "output": [{"id": "out_a", "text": "x"}],
        "store": True,
    }


async def a_history_has_all_items_in_order(bench: Bench) -> None:
    stores = await bench.open()
    await chain(stores, "a", "b", "c")
    ids = [item.id for item in await stores.responses.history(OWNER, "b")]
    assert ids == ["in_a", "out_a", "in_b", "out_b"]


async def the_least_recently_used_response_is_evicted_first(bench: Bench) -> None:
    stores = await bench.open(max_entries=2)
    await stores.responses.put(OWNER, response("a"))
    await stores.responses.put(OWNER, response("b"))
    await stores.responses.get(OWNER, "a")
    await stores.responses.put(OWNER, response("c"))
    assert await are_known(bench, "a", "b", "c") == [True, False, True]


async def continuing_a_conversation_keeps_its_first_responses(bench: Bench) -> None:
    stores = await bench.open(max_entries=3)
    await chain(stores, "a", "b")
    await stores.responses.put(OWNER, response("lonely"))
    await stores.responses.history(OWNER, "b")
    await stores.responses.put(OWNER, response("c"))
    assert await are_known(bench, "a", "b", "c", "lonely") == [True, True, True, False]


async def the_size_of_the_store_is_bounded_in_bytes(bench: Bench) -> None:
    size = response("a", *asked("a")).size
    stores = await bench.open(max_bytes=2 * size)
    for name in "abc":
        await stores.responses.put(OWNER, response(name, *asked(name)))
    assert await are_known(bench, "a", "b", "c") == [False, True, True]
    await stores.responses.remove(OWNER, "b")
    await stores.responses.put(OWNER, response("d", *asked("d")))
    assert await are_known(bench, "c", "d") == [True, True]


async def a_response_larger_than_the_store_is_not_kept_and_evicts_no_other(bench: Bench) -> None:
    stores = await bench.open(max_bytes=1000)
    await chain(stores, "a")
    await stores.responses.put(OWNER, response("b", text="x" * 1000))
    assert await gone(stores, "b") == "response_not_found"
    assert await are_known(bench, "a") == [True]
    assert (await found(stores, "out_a", "out_b")).keys() == {"out_a"}
    await stores.responses.put(OWNER, response("c"))
    assert await are_known(bench, "a", "c") == [True, True]


async def many_responses_later_the_first_has_no_trace(bench: Bench) -> None:
    stores = await bench.open(max_entries=10)
    for number in range(bench.many):
        await stores.responses.put(OWNER, response(str(number), *asked(str(number))))
    last = range(bench.many - 10, bench.many)
    assert await bench.known() == {(OWNER, str(number)) for number in last}
    for number in last:
        await stores.responses.remove(OWNER, str(number))
    assert await bench.is_empty()


async def a_history_with_a_hole_is_refused(bench: Bench) -> None:
    for names, max_entries, last in ((("b",), 9, "a"), (("a", "b"), 1, "b")):
        stores = await bench.open(max_entries=max_entries)
        await chain(stores, *names)
        with pytest.raises(RequestError) as caught:
            await stores.responses.history(OWNER, last)
        assert (caught.value.param, caught.value.code) == ("previous_response_id", "previous_response_not_found")


async def a_response_after_a_deleted_one_has_no_history(bench: Bench) -> None:
    stores = await bench.open()
    await chain(stores, "a", "b")
    await stores.responses.remove(OWNER, "a")
    with pytest.raises(RequestError, match="'a' not found"):
        await stores.responses.history(OWNER, "b")
    assert await gone(stores, "a") == "response_not_found"


async def only_a_completed_or_incomplete_response_can_be_continued(bench: Bench) -> None:
    stores = await bench.open()
    for status in ("incomplete", "failed", "cancelled"):
        await stores.responses.put(OWNER, response(status, status=status))
    assert await stores.responses.history(OWNER, "incomplete")
    for status in ("failed", "cancelled"):
        with pytest.raises(RequestError) as caught:
            await stores.responses.history(OWNER, status)
        assert caught.value.code == "previous_response_not_completed"


async def items_are_found_by_id_until_their_response_is_evicted(bench: Bench) -> None:
    stores = await bench.open()
    await chain(stores, "a", "b")
    both = {"out_a": {"id": "out_a", "text": "x"}, "in_b": {"id": "in_b"}}
    assert await found(stores, "out_a", "in_b", "other") == both
    await stores.responses.remove(OWNER, "a")
    assert await found(stores, "out_a") == {}


async def an_item_of_several_responses_outlives_the_first(bench: Bench) -> None:
    stores = await bench.open(max_entries=2)
    await stores.responses.put(OWNER, response("a", item("shared")))
    await stores.responses.put(OWNER, response("b", item("shared")))
    await stores.responses.remove(OWNER, "a")
    assert await found(stores, "shared") == {"shared": {"id": "shared"}}


async def an_id_in_use_never_refers_to_another_item(bench: Bench) -> None:
    first, mine = {"out_a": {"id": "out_a", "text": "x"}}, {"mine": {"id": "mine"}}
    for gone_first, kept in (("a", mine), ("b", first)):
        stores = await bench.open()
        await chain(stores, "a")
        await stores.responses.put(OWNER, response("b", item("out_a", text="spoofed"), item("mine")))
        assert await found(stores, "out_a", "mine") == first | mine
        await stores.responses.remove(OWNER, gone_first)
        assert await found(stores, "out_a", "mine") == kept


async def a_released_id_may_refer_to_a_later_item(bench: Bench) -> None:
    stores = await bench.open()
    await chain(stores, "a")
    await stores.responses.put(OWNER, response("b", item("out_a", text="other")))
    await stores.responses.remove(OWNER, "a")
    await stores.responses.put(OWNER, response("c", item("out_a", text="other")))
    await stores.responses.remove(OWNER, "b")
    assert await found(stores, "out_a") == {"out_a": {"id": "out_a", "text": "other"}}
    await stores.responses.remove(OWNER, "c")
    assert await bench.is_empty()


async def a_repeated_id_in_a_response_refers_to_its_first_item(bench: Bench) -> None:
    stores = await bench.open()
    await stores.responses.put(OWNER, response("a", item("twice", text="1"), item("twice", text="2")))
    assert await found(stores, "twice") == {"twice": {"id": "twice", "text": "1"}}
    await stores.responses.remove(OWNER, "a")
    assert await bench.is_empty()


async def the_bytes_of_one_history_or_lookup_are_bounded(bench: Bench) -> None:
    said, answered = len(item("in_a").json), len(item("out_a", text="x").json)
    stores = await bench.open(max_recalled_bytes=said + answered)
    await chain(stores, "a", "b")
    assert len(await stores.responses.history(OWNER, "a")) == 2
    assert len(await found(stores, "in_a", "out_b")) == 2
    with pytest.raises(RequestError, match="more than 38 bytes") as caught:
        await stores.responses.history(OWNER, "b")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "context_length_exceeded")
    with pytest.raises(RequestError) as caught:
        await found(stores, "out_a", "out_b")
    assert (caught.value.param, caught.value.code) == ("input", "context_length_exceeded")


async def the_items_of_one_history_are_bounded(bench: Bench) -> None:
    stores = await bench.open(max_bytes=10**7, max_recalled_bytes=10**7)
    many = [item(f"msg_{number}") for number in range(MAX_RECALLED_ITEMS // 2)]
    await stores.responses.put(OWNER, response("a", *many))
    await stores.responses.put(OWNER, response("b", *many, previous="a"))
    assert len(await stores.responses.history(OWNER, "a")) == len(many) + 1
    with pytest.raises(RequestError, match="are more than 8192") as caught:
        await stores.responses.history(OWNER, "b")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "context_length_exceeded")


async def the_responses_and_items_of_others_look_unknown(bench: Bench) -> None:
    stores = await bench.open()
    await chain(stores, "a")
    assert await gone(stores, "a", owner="other") == "response_not_found"
    assert not await stores.responses.remove("other", "a")
    assert await found(stores, "in_a", "out_a", owner="other") == {}
    with pytest.raises(RequestError) as caught:
        await stores.responses.history("other", "a")
    assert caught.value.code == "previous_response_not_found"
    assert await are_known(bench, "a") == [True]


async def owners_may_use_the_same_ids(bench: Bench) -> None:
    for first, left in ((OWNER, "other"), ("other", OWNER)):
        stores = await bench.open()
        for owner in (first, left):
            await stores.responses.put(owner, response(f"by_{owner}", item("msg_1", text=owner)))
        for owner in (first, left):
            assert await found(stores, "msg_1", owner=owner) == {"msg_1": {"id": "msg_1", "text": owner}}
        assert await stores.responses.remove(first, f"by_{first}")
        assert await found(stores, "msg_1", owner=first) == {}
        assert (await found(stores, "msg_1", owner=left))["msg_1"]["text"] == left


async def an_owner_with_at_most_its_share_loses_nothing(bench: Bench) -> None:
    stores = await bench.open(max_entries=8)
    for number in range(6):
        await stores.responses.put("greedy", response(f"greedy {number}"))
    for number in range(4):
        await stores.responses.put(OWNER, response(str(number)))
    await stores.responses.put("third", response("of the third"))
    for number in range(6, 100):
        await stores.responses.put("greedy", response(f"greedy {number}"))
    assert await are_known(bench, "of the third", owner="third") == [True]
    assert await are_known(bench, "0", "1", "2", "3") == [False, True, True, True]
    assert (
        await are_known(bench, *(f"greedy {number}" for number in range(95, 100)), owner="greedy")
        == [False] + [True] * 4
    )


async def a_large_response_displaces_only_those_of_its_owner(bench: Bench) -> None:
    size = response("a").size
    stores = await bench.open(max_bytes=5 * size)
    for name in "ab":
        await stores.responses.put(OWNER, response(name))
    await stores.responses.put("greedy", response("c"))
    await stores.responses.put("greedy", response("d", text="x" * (3 * size)))
    assert await are_known(bench, "a", "b") == [True, True]
    assert await are_known(bench, "c", "d", owner="greedy") == [False, False]


async def ids_may_have_any_characters(bench: Bench) -> None:
    stores, odd = await bench.open(), "msg_\0\u2028ü?%s" + "é" * 200
    await stores.responses.put(OWNER, response("a", item(odd)))
    assert await found(stores, odd) == {odd: {"id": odd}}
    for unknown in ("\0", "resp_" + "x" * 10_000, "%"):
        assert await gone(stores, unknown) == "response_not_found"


async def a_background_response_is_stored_at_its_end(bench: Bench) -> None:
    stores = await bench.open()
    await stores.responses.announce(OWNER, response("a", status="queued", background=True), lambda: None)
    await stores.responses.update(OWNER, response("a", status="in_progress", background=True))
    for owner, code in ((OWNER, "previous_response_not_completed"), ("other", "previous_response_not_found")):
        with pytest.raises(RequestError) as caught:
            await stores.responses.history(owner, "a")
        assert caught.value.code == code
    ended = response("a", *asked("a"), background=True)
    await stores.responses.put(OWNER, ended)
    stores.responses.forget("a")
    assert await stores.responses.get(OWNER, "a") == await stores.responses.cancel(OWNER, "a") == ended
    with pytest.raises(RefusedError):
        await stores.responses.cancel("other", "a")
    assert await stores.responses.remove(OWNER, "a")
    assert await bench.is_empty()


CASES = (
    a_response_comes_back_as_it_was,
    a_history_has_all_items_in_order,
    the_least_recently_used_response_is_evicted_first,
    continuing_a_conversation_keeps_its_first_responses,
    the_size_of_the_store_is_bounded_in_bytes,
    a_response_larger_than_the_store_is_not_kept_and_evicts_no_other,
    many_responses_later_the_first_has_no_trace,
    a_history_with_a_hole_is_refused,
    a_response_after_a_deleted_one_has_no_history,
    only_a_completed_or_incomplete_response_can_be_continued,
    items_are_found_by_id_until_their_response_is_evicted,
    an_item_of_several_responses_outlives_the_first,
    an_id_in_use_never_refers_to_another_item,
    a_released_id_may_refer_to_a_later_item,
    a_repeated_id_in_a_response_refers_to_its_first_item,
    the_bytes_of_one_history_or_lookup_are_bounded,
    the_items_of_one_history_are_bounded,
    the_responses_and_items_of_others_look_unknown,
    owners_may_use_the_same_ids,
    an_owner_with_at_most_its_share_loses_nothing,
    a_large_response_displaces_only_those_of_its_owner,
    ids_may_have_any_characters,
    a_background_response_is_stored_at_its_end,
)
