"""Names of models in several files."""

import pytest

from engine.gguf.split_file import SplitFile, parts_of


def test_the_name_of_each_part_gives_those_of_all() -> None:
    names = [f"folder/model-Q8_0-{part:05}-of-00003.gguf" for part in (1, 2, 3)]
    assert [SplitFile.parse(name) for name in names] == [SplitFile("folder/model-Q8_0", at, 3) for at in (1, 2, 3)]
    assert all(parts_of(name) == names for name in names)


def test_the_parts_keep_the_case_of_a_suffix() -> None:
    assert parts_of("a-00001-of-00001.GGUF") == ["a-00001-of-00001.GGUF"]


@pytest.mark.parametrize("name", ["a.gguf", "a-00001-of-00000.gguf", "a-1-of-2.gguf", "-00001-of-00002.gguf"])
def test_other_names_are_those_of_ordinary_files(name: str) -> None:
    assert SplitFile.parse(name) is None
    assert parts_of(name) == [name]
