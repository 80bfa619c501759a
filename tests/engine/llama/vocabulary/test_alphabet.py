"""Where a vocabulary has no tokens of single bytes, a text with other characters than its own is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import RequestError
from tests.engine.llama.vocabulary.vocabularies import TURNS, opened, write_vocabulary

TOKENIZE = """
import sys
from pathlib import Path
from engine.errors import RequestError
from tests.engine.llama.vocabulary.vocabularies import opened

with opened(Path(sys.argv[1])) as vocabulary:
    try:
        print(len(vocabulary.tokenize(sys.argv[2], special=sys.argv[3] == "special", begin=False)))
    except RequestError as error:
        print(error.message)
"""
PREPARE = """
import sys
from pathlib import Path
from engine.errors import RequestError
from engine.request import Sampling
from engine.sampling.dry import DryTemplates
from tests.engine.llama.vocabulary.vocabularies import opened

with opened(Path(sys.argv[1])) as vocabulary:
    templates = DryTemplates(vocabulary.vocab, 512)
    for breaker in sys.argv[2:]:
        try:
            vocabulary.check_breaker(breaker)
            templates.prepare(Sampling(dry_multiplier=1.0, dry_sequence_breakers=("a", breaker)))
            print("prepared")
        except RequestError as error:
            print(error.param, error.message)
    templates.close()
"""
MARK = "\u4e2d\n"
REFUSED = "the vocabulary of this model has no token for the character {!r}"


@pytest.mark.parametrize(
    ("text", "special", "answer"),
    [
        ("a b", True, "2"),
        ("", True, "0"),
        (f"{TURNS[0]}{MARK}", True, "2"),
        (MARK, False, "1"),
        (f"a{MARK}\n", False, REFUSED.format("\n")),
        ("a \u00e9", True, REFUSED.format("\u00e9")),
    ],
)
def test_a_text_with_a_character_that_has_no_token_is_refused(
    tmp_path: Path, text: str, special: bool, answer: str
) -> None:
    path = write_vocabulary(tmp_path / "vocabulary.gguf", "spm", marks=[MARK], byte_fallback=False)
    command = [sys.executable, "-c", TOKENIZE, str(path), text, "special" if special else "plain"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, answer), done.stderr[-1000:]


def test_a_sequence_breaker_whose_rest_cannot_be_tokenised_is_refused(tmp_path: Path) -> None:
    path = write_vocabulary(tmp_path / "vocabulary.gguf", "spm", marks=[MARK], byte_fallback=False)
    answers = {
        "\u00e9": "prepared",
        "\u00e9a": "prepared",
        "ab c": "prepared",
        f"b{MARK}": f"dry_sequence_breakers {REFUSED.format(MARK[-1])}",
        "a\u00e9": f"dry_sequence_breakers {REFUSED.format(chr(0xE9))}",
    }
    command = [sys.executable, "-c", PREPARE, str(path), *answers]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.splitlines()) == (0, [*answers.values()]), done.stderr[-1000:]


def test_a_text_without_a_token_is_refused_where_there_is_no_unknown_token(tmp_path: Path) -> None:
    with opened(write_vocabulary(tmp_path / "vocabulary.gguf", "rwkv")) as vocabulary:
        assert len(vocabulary.tokenize("ab", special=True, begin=False)) == 2
        with pytest.raises(RequestError, match="no token for a part of the text"):
            vocabulary.tokenize("a\u00e9", special=True, begin=False)
