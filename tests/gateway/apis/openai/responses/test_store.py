"""The response store: its contents, its eviction, and histories with deleted responses."""

from typing import Any

import orjson
import pytest

from engine import RequestError
from gateway.apis.openai.responses.store import ResponseStore
from gateway.middleware.errors import RefusedError


def response(name: str, *, previous: str | None = None, status: str = "completed", text: str = "x") -> Any:
    """Return the fields of a response that the store reads."""
    return {
        "id": name,
        "previous_response_id": previous,
        "status": status,
        "background": False,
        "output": [{"id": f"out_{name}", "text": text}],
    }


def asked(name: str) -> list[Any]:
    return [item(f"in_{name}")]


def item(name: str, **fields: str) -> Any:
    """Return the fields of an item that the store reads."""
    return {"id": name, **fields}


def store_of(
    *names: str, max_responses: int = 100, max_bytes: int = 10**6, max_recalled_bytes: int = 10**6
) -> ResponseStore:
    """Return a store with one conversation, each response following the one before."""
    store = ResponseStore(max_responses=max_responses, max_bytes=max_bytes, max_recalled_bytes=max_recalled_bytes)
    for before, name in zip((None, *names), names, strict=False):
        store.put(response(name, previous=before), asked(name))
    return store


def known(store: ResponseStore, *names: str) -> list[bool]:
    return [name in store._stored for name in names]


def gone(store: ResponseStore, name: str) -> str | None:
    with pytest.raises(RefusedError) as caught:
        store.get(name)
    assert caught.value.problem.status == 404
    return caught.value.problem.code


def test_a_response_comes_back_as_it_was() -> None:
    stored = store_of("a").get("a")
    assert orjson.loads(stored.response) == response("a")
    assert stored.inputs == asked("a")


def test_a_history_has_all_items_in_order() -> None:
    ids = [item["id"] for item in store_of("a", "b", "c").history("b")]
    assert ids == ["in_a", "out_a", "in_b", "out_b"]


def test_the_least_recently_used_response_is_evicted_first() -> None:
    store = store_of(max_responses=2)
    store.put(response("a"), [])
    store.put(response("b"), [])
    store.get("a")
    store.put(response("c"), [])
    assert known(store, "a", "b", "c") == [True, False, True]


def test_continuing_a_conversation_keeps_its_first_responses() -> None:
    store = store_of("a", "b", max_responses=3)
    store.put(response("lonely"), [])
    store.history("b")
    store.put(response("c"), [])
    assert known(store, "a", "b", "c", "lonely") == [True, True, True, False]


def test_the_size_of_the_store_is_bounded_in_bytes() -> None:
    size = len(orjson.dumps(response("a"))) + len(orjson.dumps(asked("a")))
    store = store_of(max_bytes=2 * size)
    for name in "abc":
        store.put(response(name), asked(name))
    assert known(store, "a", "b", "c") == [False, True, True]
    store.remove("b")
    store.put(response("d"), asked("d"))
    assert known(store, "c", "d") == [True, True]


def test_a_response_larger_than_the_store_is_not_kept_and_evicts_no_other() -> None:
    store = store_of("a", max_bytes=1000)
    store.put(response("b", text="x" * 1000), [])
    assert gone(store, "b") == "response_not_found"
    assert known(store, "a") == [True]
    assert store.items({"out_a", "out_b"}).keys() == {"out_a"}
    store.put(response("c"), [])
    assert known(store, "a", "c") == [True, True]


def test_a_thousand_responses_later_the_first_has_no_trace() -> None:
    store = store_of(max_responses=10)
    for number in range(1000):
        store.put(response(str(number)), asked(str(number)))
    assert len(store._stored) == 10
    assert len(store._items) == 20
    for number in range(990, 1000):
        store.remove(str(number))
    assert (store._free_bytes, store._items) == (10**6, {})


@pytest.mark.parametrize(
    ("store", "code"),
    [
        (store_of("b"), "previous_response_not_found"),
        (store_of("a", "b", max_responses=1), "previous_response_not_found"),
    ],
)
def test_a_history_with_a_hole_is_refused(store: ResponseStore, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        store.history("a" if not known(store, "a")[0] else "b")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", code)


def test_a_response_after_a_deleted_one_has_no_history() -> None:
    store = store_of("a", "b")
    store.remove("a")
    with pytest.raises(RequestError, match="'a' not found"):
        store.history("b")
    assert gone(store, "a") == "response_not_found"


@pytest.mark.parametrize(("status", "continues"), [("incomplete", True), ("failed", False), ("cancelled", False)])
def test_only_a_completed_or_incomplete_response_can_be_continued(status: str, continues: bool) -> None:
    store = store_of(max_responses=2)
    store.put(response("a", status=status), [])
    if continues:
        assert store.history("a")
        return
    with pytest.raises(RequestError) as caught:
        store.history("a")
    assert caught.value.code == "previous_response_not_completed"


def test_items_are_found_by_id_until_their_response_is_evicted() -> None:
    store = store_of("a", "b")
    assert store.items({"out_a", "in_b", "other"}) == {"out_a": {"id": "out_a", "text": "x"}, "in_b": {"id": "in_b"}}
    store.remove("a")
    assert store.items({"out_a"}) == {}


def test_an_item_of_several_responses_outlives_the_first() -> None:
    store = store_of(max_responses=2)
    store.put(response("a"), [item("shared")])
    store.put(response("b"), [item("shared")])
    store.remove("a")
    assert store.items({"shared"}) == {"shared": {"id": "shared"}}


@pytest.mark.parametrize("gone_first", ["a", "b"])
def test_an_id_in_use_never_refers_to_another_item(gone_first: str) -> None:
    store = store_of("a")
    store.put(response("b"), [item("out_a", text="spoofed"), item("mine")])
    assert store.items({"out_a", "mine"}) == {"out_a": {"id": "out_a", "text": "x"}, "mine": {"id": "mine"}}
    store.remove(gone_first)
    kept = {"mine": {"id": "mine"}} if gone_first == "a" else {"out_a": {"id": "out_a", "text": "x"}}
    assert store.items({"out_a", "mine"}) == kept


def test_a_released_id_may_refer_to_a_later_item() -> None:
    store = store_of("a")
    store.put(response("b"), [item("out_a", text="other")])
    store.remove("a")
    store.put(response("c"), [item("out_a", text="other")])
    store.remove("b")
    assert store.items({"out_a"}) == {"out_a": {"id": "out_a", "text": "other"}}
    store.remove("c")
    assert (store._free_bytes, store._items) == (10**6, {})


def test_a_repeated_id_in_a_response_refers_to_its_first_item() -> None:
    store = store_of()
    store.put(response("a"), [item("twice", text="1"), item("twice", text="2")])
    assert store.items({"twice"}) == {"twice": {"id": "twice", "text": "1"}}
    store.remove("a")
    assert store._items == {}


def test_the_bytes_of_one_history_or_lookup_are_bounded() -> None:
    said, answered = len(orjson.dumps(asked("a")[0])), len(orjson.dumps(response("a")["output"][0]))
    store = store_of("a", "b", max_recalled_bytes=said + answered)
    assert len(store.history("a")) == 2
    assert len(store.items({"in_a", "out_b"})) == 2
    with pytest.raises(RequestError, match="more than 38 bytes") as caught:
        store.history("b")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "context_length_exceeded")
    with pytest.raises(RequestError) as caught:
        store.items({"out_a", "out_b"})
    assert (caught.value.param, caught.value.code) == ("input", "context_length_exceeded")
