"""The response store: its contents, its eviction, and histories with deleted responses."""

from typing import Any

import orjson
import pytest

from engine import RequestError
from gateway.apis.openai.responses.encoded import EncodedItem, EncodedResponse
from gateway.apis.openai.responses.store.owned import OwnedResponses
from gateway.apis.openai.responses.store.shares import Shares
from gateway.apis.openai.responses.store.store import MAX_RECALLED_ITEMS, ResponseStore
from gateway.apis.openai.responses.store.stored_response import StoredResponse
from gateway.middleware.errors import RefusedError

OWNER = "digest"


def item(name: str, **fields: str) -> EncodedItem:
    return EncodedItem(name, orjson.dumps({"id": name, **fields}))


def asked(name: str) -> tuple[EncodedItem, ...]:
    return (item(f"in_{name}"),)


def response(
    name: str,
    *inputs: EncodedItem,
    previous: str | None = None,
    status: str = "completed",
    text: str = "x",
) -> StoredResponse:
    """Return a response with one item of output."""
    return StoredResponse(
        id=name,
        content=EncodedResponse(orjson.dumps({"id": name}), (item(f"out_{name}", text=text),), b'{"store":true}'),
        inputs=inputs,
        previous_id=previous,
        can_continue=status in {"completed", "incomplete"},
        background=False,
    )


def store_of(
    *names: str, max_responses: int = 100, max_bytes: int = 10**6, max_recalled_bytes: int = 10**6
) -> ResponseStore:
    """Return a store with one conversation, each response following the one before."""
    shares = Shares(max_entries=max_responses, max_bytes=max_bytes)
    store = ResponseStore(shares, max_recalled_bytes=max_recalled_bytes)
    for before, name in zip((None, *names), names, strict=False):
        store.put(OWNER, response(name, *asked(name), previous=before))
    return store


def known(store: ResponseStore, *names: str, owner: str = OWNER) -> list[bool]:
    owned = store._owners.get(owner, OwnedResponses())
    return [name in owned._responses for name in names]


def gone(store: ResponseStore, name: str, owner: str = OWNER) -> str | None:
    with pytest.raises(RefusedError) as caught:
        store.get(owner, name)
    assert caught.value.problem.status == 404
    return caught.value.problem.code


def found(store: ResponseStore, *names: str, owner: str = OWNER) -> dict[str, Any]:
    """Return the items with these ids, decoded."""
    return {name: orjson.loads(item.json) for name, item in store.items(owner, names).items()}


def is_empty(store: ResponseStore) -> bool:
    shares = store._shares
    return (shares._count, shares._size, len(shares._owners), len(store._owners)) == (0, 0, 0, 0)


def test_a_response_comes_back_as_it_was() -> None:
    stored = store_of("a").get(OWNER, "a")
    assert stored == response("a", *asked("a"))
    assert orjson.loads(stored.content.to_json()) == {
        "id": "a",
        "output": [{"id": "out_a", "text": "x"}],
        "store": True,
    }


def test_a_history_has_all_items_in_order() -> None:
    ids = [item.id for item in store_of("a", "b", "c").history(OWNER, "b")]
    assert ids == ["in_a", "out_a", "in_b", "out_b"]


def test_the_least_recently_used_response_is_evicted_first() -> None:
    store = store_of(max_responses=2)
    store.put(OWNER, response("a"))
    store.put(OWNER, response("b"))
    store.get(OWNER, "a")
    store.put(OWNER, response("c"))
    assert known(store, "a", "b", "c") == [True, False, True]


def test_continuing_a_conversation_keeps_its_first_responses() -> None:
    store = store_of("a", "b", max_responses=3)
    store.put(OWNER, response("lonely"))
    store.history(OWNER, "b")
    store.put(OWNER, response("c"))
    assert known(store, "a", "b", "c", "lonely") == [True, True, True, False]


def test_the_size_of_the_store_is_bounded_in_bytes() -> None:
    size = response("a", *asked("a")).size
    store = store_of(max_bytes=2 * size)
    for name in "abc":
        store.put(OWNER, response(name, *asked(name)))
    assert known(store, "a", "b", "c") == [False, True, True]
    store.remove(OWNER, "b")
    store.put(OWNER, response("d", *asked("d")))
    assert known(store, "c", "d") == [True, True]


def test_a_response_larger_than_the_store_is_not_kept_and_evicts_no_other() -> None:
    store = store_of("a", max_bytes=1000)
    store.put(OWNER, response("b", text="x" * 1000))
    assert gone(store, "b") == "response_not_found"
    assert known(store, "a") == [True]
    assert found(store, "out_a", "out_b").keys() == {"out_a"}
    store.put(OWNER, response("c"))
    assert known(store, "a", "c") == [True, True]


def test_a_thousand_responses_later_the_first_has_no_trace() -> None:
    store = store_of(max_responses=10)
    for number in range(1000):
        store.put(OWNER, response(str(number), *asked(str(number))))
    assert len(store._owners[OWNER]._responses) == 10
    assert len(store._owners[OWNER]._items) == 20
    for number in range(990, 1000):
        store.remove(OWNER, str(number))
    assert is_empty(store)


@pytest.mark.parametrize(
    ("store", "code"),
    [
        (store_of("b"), "previous_response_not_found"),
        (store_of("a", "b", max_responses=1), "previous_response_not_found"),
    ],
)
def test_a_history_with_a_hole_is_refused(store: ResponseStore, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        store.history(OWNER, "a" if not known(store, "a")[0] else "b")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", code)


def test_a_response_after_a_deleted_one_has_no_history() -> None:
    store = store_of("a", "b")
    store.remove(OWNER, "a")
    with pytest.raises(RequestError, match="'a' not found"):
        store.history(OWNER, "b")
    assert gone(store, "a") == "response_not_found"


@pytest.mark.parametrize(("status", "continues"), [("incomplete", True), ("failed", False), ("cancelled", False)])
def test_only_a_completed_or_incomplete_response_can_be_continued(status: str, continues: bool) -> None:
    store = store_of(max_responses=2)
    store.put(OWNER, response("a", status=status))
    if continues:
        assert store.history(OWNER, "a")
        return
    with pytest.raises(RequestError) as caught:
        store.history(OWNER, "a")
    assert caught.value.code == "previous_response_not_completed"


def test_items_are_found_by_id_until_their_response_is_evicted() -> None:
    store = store_of("a", "b")
    assert found(store, "out_a", "in_b", "other") == {"out_a": {"id": "out_a", "text": "x"}, "in_b": {"id": "in_b"}}
    store.remove(OWNER, "a")
    assert found(store, "out_a") == {}


def test_an_item_of_several_responses_outlives_the_first() -> None:
    store = store_of(max_responses=2)
    store.put(OWNER, response("a", item("shared")))
    store.put(OWNER, response("b", item("shared")))
    store.remove(OWNER, "a")
    assert found(store, "shared") == {"shared": {"id": "shared"}}


@pytest.mark.parametrize("gone_first", ["a", "b"])
def test_an_id_in_use_never_refers_to_another_item(gone_first: str) -> None:
    store = store_of("a")
    store.put(OWNER, response("b", item("out_a", text="spoofed"), item("mine")))
    assert found(store, "out_a", "mine") == {"out_a": {"id": "out_a", "text": "x"}, "mine": {"id": "mine"}}
    store.remove(OWNER, gone_first)
    kept = {"mine": {"id": "mine"}} if gone_first == "a" else {"out_a": {"id": "out_a", "text": "x"}}
    assert found(store, "out_a", "mine") == kept


def test_a_released_id_may_refer_to_a_later_item() -> None:
    store = store_of("a")
    store.put(OWNER, response("b", item("out_a", text="other")))
    store.remove(OWNER, "a")
    store.put(OWNER, response("c", item("out_a", text="other")))
    store.remove(OWNER, "b")
    assert found(store, "out_a") == {"out_a": {"id": "out_a", "text": "other"}}
    store.remove(OWNER, "c")
    assert is_empty(store)


def test_a_repeated_id_in_a_response_refers_to_its_first_item() -> None:
    store = store_of()
    store.put(OWNER, response("a", item("twice", text="1"), item("twice", text="2")))
    assert found(store, "twice") == {"twice": {"id": "twice", "text": "1"}}
    store.remove(OWNER, "a")
    assert is_empty(store)


def test_the_bytes_of_one_history_or_lookup_are_bounded() -> None:
    said, answered = len(item("in_a").json), len(item("out_a", text="x").json)
    store = store_of("a", "b", max_recalled_bytes=said + answered)
    assert len(store.history(OWNER, "a")) == 2
    assert len(found(store, "in_a", "out_b")) == 2
    with pytest.raises(RequestError, match="more than 38 bytes") as caught:
        store.history(OWNER, "b")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "context_length_exceeded")
    with pytest.raises(RequestError) as caught:
        found(store, "out_a", "out_b")
    assert (caught.value.param, caught.value.code) == ("input", "context_length_exceeded")


def test_the_items_of_one_history_are_bounded() -> None:
    store = store_of(max_bytes=10**7, max_recalled_bytes=10**7)
    many = [item(f"msg_{number}") for number in range(MAX_RECALLED_ITEMS // 2)]
    store.put(OWNER, response("a", *many))
    store.put(OWNER, response("b", *many, previous="a"))
    assert len(store.history(OWNER, "a")) == len(many) + 1
    with pytest.raises(RequestError, match="are more than 8192") as caught:
        store.history(OWNER, "b")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "context_length_exceeded")


def test_the_responses_and_items_of_others_look_unknown() -> None:
    store = store_of("a")
    assert gone(store, "a", owner="other") == "response_not_found"
    assert not store.remove("other", "a")
    assert found(store, "in_a", "out_a", owner="other") == {}
    with pytest.raises(RequestError) as caught:
        store.history("other", "a")
    assert caught.value.code == "previous_response_not_found"
    assert known(store, "a") == [True]


@pytest.mark.parametrize("first", [OWNER, "other"])
def test_owners_may_use_the_same_ids(first: str) -> None:
    store = store_of()
    for owner in sorted([OWNER, "other"], key=lambda owner: owner != first):
        store.put(owner, response(f"by_{owner}", item("msg_1", text=owner)))
    assert [found(store, "msg_1", owner=owner)["msg_1"]["text"] for owner in (OWNER, "other")] == [OWNER, "other"]
    assert store.remove(first, f"by_{first}")
    assert found(store, "msg_1", owner=first) == {}
    (left,) = {OWNER, "other"} - {first}
    assert found(store, "msg_1", owner=left)["msg_1"]["text"] == left


def test_an_owner_with_at_most_its_share_loses_nothing() -> None:
    store = store_of(max_responses=8)
    for number in range(6):
        store.put("greedy", response(f"greedy {number}"))
    for number in range(4):
        store.put(OWNER, response(str(number)))
    store.put("third", response("of the third"))
    for number in range(6, 100):
        store.put("greedy", response(f"greedy {number}"))
    assert known(store, "of the third", owner="third") == [True]
    assert known(store, "0", "1", "2", "3") == [False, True, True, True]
    assert known(store, *(f"greedy {number}" for number in range(95, 100)), owner="greedy") == [False] + [True] * 4


def test_a_large_response_displaces_only_those_of_its_owner() -> None:
    size = response("a").size
    store = store_of(max_bytes=5 * size)
    for name in "ab":
        store.put(OWNER, response(name))
    store.put("greedy", response("c"))
    store.put("greedy", response("d", text="x" * (3 * size)))
    assert known(store, "a", "b") == [True, True]
    assert known(store, "c", "d", owner="greedy") == [False, False]
