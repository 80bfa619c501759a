"""Each kind of memory after a restart with prefixes on disk: the tokens computed, and answers as without a cache."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from engine.errors import EngineFault
from engine.prefix_files import format as prefix_format
from engine.prefix_files.format import FINGERPRINT, FORMAT
from tests.architectures.conversations import Chat, Served, words
from tests.architectures.families import FAMILIES, Memory, quick_for_some
from tests.architectures.test_conversations import SLACK, size

SYSTEM = words(0, 400)
MEMORY = {family.name: family.memory for family in FAMILIES}


@contextmanager
def served(family: str, root: Path, *, slots: int = 3, unified: bool = False) -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(stack, family, prefix_dir=str(root), slots=slots, unified=unified)


@pytest.mark.parametrize("family", quick_for_some(family.name for family in FAMILIES))
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


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("family", quick_for_some(family.name for family in FAMILIES))
def test_an_engine_with_other_slots_reads_only_what_llama_cpp_takes(family: str, unified: bool, tmp_path: Path) -> None:
    chat = Chat(SYSTEM, [words(1, 150)])
    with served(family, tmp_path, unified=unified) as first:
        first.ask(chat)
        whole = size(first, chat.prompt().text) + 1
    with served(family, tmp_path, slots=2, unified=unified) as second:
        _, computed = second.ask(chat)
    one_stream = unified or MEMORY[family] is Memory.RECURRENT
    assert computed <= SLACK if one_stream else computed == whole


def test_files_of_another_model_are_not_used(tmp_path: Path) -> None:
    chat = Chat(SYSTEM, [words(1, 150)])
    computed = {}
    for family in [family.name for family in FAMILIES][:2]:
        with served(family, tmp_path) as first:
            _, computed[family] = first.ask(chat)
            assert computed[family] == size(first, chat.prompt().text) + 1


def test_a_file_that_llama_cpp_refuses_is_deleted_before_the_engine_ends(tmp_path: Path) -> None:
    family, chat = FAMILIES[0].name, Chat(SYSTEM, [words(1, 150)])
    with served(family, tmp_path) as first:
        first.ask(chat)
    [path] = tmp_path.glob("*/*.prefix")
    fingerprint = path.read_bytes()[len(FORMAT) : len(FORMAT) + FINGERPRINT]
    with path.open("rb") as source:
        file = prefix_format.read_header(source, fingerprint, path.name).file
    with path.open("wb") as target:
        prefix_format.write(target, fingerprint, file, np.full(file.bytes, 255, np.uint8))
    with served(family, tmp_path) as second:
        with pytest.raises(EngineFault):
            second.ask(chat)
        assert not path.exists()
