"""Each kind of memory after a restart with prefixes on disk: the tokens computed, and answers as without a cache."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.architectures.conversations import Chat, Served, words
from tests.architectures.families import FAMILIES
from tests.architectures.test_conversations import SLACK, size

SYSTEM = words(0, 400)


@contextmanager
def served(family: str, root: Path) -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(stack, family, prefix_dir=str(root))


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_a_restarted_engine_computes_only_what_is_new(family: str, tmp_path: Path) -> None:
    chat, other = Chat(SYSTEM, [words(1, 150)]), Chat(SYSTEM, [words(2, 150)])
    with served(family, tmp_path) as first:
        answer, _ = first.ask(chat)
        chat.messages += [answer.text, words(3, 150)]
    with served(family, tmp_path) as second:
        answer, computed = second.ask(chat)
        assert computed <= size(second, " ".join(chat.messages[-2:])) + SLACK
        second.check(answer, chat)
    with served(family, tmp_path) as third:
        answer, computed = third.ask(other)
        assert computed <= size(third, other.messages[0]) + SLACK
        third.check(answer, other)


def test_files_of_another_model_are_not_used(tmp_path: Path) -> None:
    chat = Chat(SYSTEM, [words(1, 150)])
    computed = {}
    for family in [family.name for family in FAMILIES][:2]:
        with served(family, tmp_path) as first:
            _, computed[family] = first.ask(chat)
            assert computed[family] == size(first, chat.prompt().text) + 1
