"""The tokens that a file excludes from generated texts."""

from pathlib import Path

import pytest

from tests.engine.llama.vocabulary.vocabularies import opened, write_vocabulary


@pytest.mark.parametrize(("listed", "known"), [((), set()), ((7, 5, 7), {5, 7}), ((-1, 5, 10**6), {5})])
def test_they_are_read_from_the_file(tmp_path: Path, listed: tuple[int, ...], known: set[int]) -> None:
    with opened(write_vocabulary(tmp_path / "vocabulary.gguf", "spm", suppressed=listed)) as vocabulary:
        assert vocabulary.suppressed_tokens == known
