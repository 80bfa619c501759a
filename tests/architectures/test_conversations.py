"""The next turn of a conversation computes only new tokens, on each kind of memory, and answers as without a cache."""

from collections.abc import Iterator
from contextlib import ExitStack
from operator import itemgetter

import pytest

from engine.llama.memory.contexts import Contexts
from tests.architectures.conversations import REASONING, Chat, Served, words
from tests.architectures.families import FAMILIES, Memory, quick_for_some

FULL, SHORT, UNIFIED = "full windows", "windows only", "unified"
SHAPES = [(family.name, FULL) for family in FAMILIES]
SHAPES += [(family.name, kind) for family in FAMILIES if family.memory is Memory.WINDOW for kind in (SHORT, UNIFIED)]
SLACK = 8
"""Tokens beside a checkpoint that may be computed again: the cut of the text, and the words that open an answer."""


def title(shape: tuple[str, str]) -> str:
    name, kind = shape
    return name if kind == FULL else f"{name} ({kind})"


@pytest.fixture(params=quick_for_some(SHAPES, itemgetter(0)), ids=title)
def shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, bool]:
    """Return a family, and whether its slots share their cells."""
    name, kind = request.param
    monkeypatch.setattr(Contexts, "headroom", lambda *_arguments: 0 if kind == FULL else -1)
    return str(name), kind == UNIFIED


@pytest.fixture
def served(shape: tuple[str, bool]) -> Iterator[Served]:
    name, unified = shape
    with ExitStack() as stack:
        yield Served(stack, name, unified=unified)


def size(served: Served, text: str) -> int:
    return len(served.loaded.model.tokenize(text, begin=False))


def test_each_turn_computes_only_what_is_new(served: Served) -> None:
    chat = Chat(words(0, 200))
    for turn in range(4):
        chat.messages.append(words(turn + 1, 150))
        new = size(served, chat.prompt().text) if turn == 0 else size(served, " ".join(chat.messages[-2:]))
        answer, computed = served.ask(chat)
        assert computed <= new + SLACK
        served.check(answer, chat)
        chat.messages.append(answer.text[REASONING:])


def test_an_edit_of_the_last_message_computes_only_that_message(served: Served) -> None:
    chat = Chat(words(0, 200), [words(1, 150)])
    answer, _ = served.ask(chat)
    chat.messages += [answer.text, words(2, 150)]
    served.ask(chat)
    chat.messages[-1] = words(3, 150)
    answer, computed = served.ask(chat)
    assert computed <= size(served, chat.messages[-1]) + SLACK
    served.check(answer, chat)


@pytest.mark.parametrize("at_once", [False, True])
def test_two_clients_compute_their_common_system_prompt_once(served: Served, at_once: bool) -> None:
    chats = [Chat(words(0, 300), [words(1 + client, 150)]) for client in range(2)]
    keys = []
    for chat in chats:
        keys.append(served.add(chat.prompt()))
        if not at_once:
            served.drain()
    answers = [served.finished(key) for key in keys]
    messages = sum(size(served, chat.messages[0]) for chat in chats)
    assert served.computed() <= size(served, chats[0].system) + messages + 2 * SLACK
    for answer, chat in zip(answers, chats, strict=True):
        served.check(answer, chat)


def test_conversations_that_were_crowded_out_go_on_from_host_memory(served: Served) -> None:
    chats = [Chat(words(100 * client, 200), [words(100 * client + 1, 150)]) for client in range(6)]
    for chat in chats:
        chat.messages += [served.ask(chat)[0].text[REASONING:], words(7, 100)]
    for chat in chats:
        answer, computed = served.ask(chat)
        assert computed <= size(served, " ".join(chat.messages[-2:])) + SLACK
        served.check(answer, chat)
