"""Turns among clients."""

from engine.fairness.client_turns import ClientTurns


def take_all(turns: ClientTurns[str]) -> list[str]:
    taken = []
    while turns:
        taken.append(turns.take())
    return taken


def test_each_client_has_one_item_in_turn_and_its_oldest_first() -> None:
    turns: ClientTurns[str] = ClientTurns()
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        turns.add(item[0], item)
    assert take_all(turns) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_new_client_waits_for_one_item_of_each_other() -> None:
    turns: ClientTurns[str] = ClientTurns()
    for item in ("a1", "a2", "b1", "b2"):
        turns.add(item[0], item)
    assert turns.take() == "a1"
    turns.add("c", "c1")
    assert take_all(turns) == ["b1", "a2", "c1", "b2"]


def test_a_discarded_item_is_not_taken() -> None:
    turns: ClientTurns[str] = ClientTurns()
    for item in ("a1", "a2", "b1"):
        turns.add(item[0], item)
    turns.discard("a", "a1")
    turns.discard("b", "b1")
    turns.discard("c", "c1")
    assert take_all(turns) == ["a2"]
