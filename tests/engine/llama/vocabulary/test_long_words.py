"""Words without end, for which llama.cpp recurses as deeply as they are long, do not end the process."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.llama.vocabulary.vocabularies import write_vocabulary

TOKENIZE = """
import sys
from pathlib import Path
from tests.engine.llama.vocabulary.vocabularies import opened

with opened(Path(sys.argv[1])) as vocabulary:
    print(len(vocabulary.tokenize(sys.argv[2] * 60_000, special=True, begin=False)))
"""


@pytest.mark.parametrize("character", ["a", " ", "\u4e2d"])
@pytest.mark.parametrize("pre", ["tekken", "deepseek-v3", "gpt-4o"])
def test_a_long_word_is_tokenised(tmp_path: Path, pre: str, character: str) -> None:
    path = write_vocabulary(tmp_path / "vocabulary.gguf", "bpe", pre=pre)
    command = [sys.executable, "-c", TOKENIZE, str(path), character]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, int(done.stdout or 0) > 0) == (0, True), done.stderr[-1000:]
