"""Words and sentences of the generated text, one per line in `text/`, all written for this purpose."""

from functools import cache
from pathlib import Path


@cache
def lines(name: str) -> tuple[str, ...]:
    """Return the lines of `text/<name>.txt`."""
    return tuple((Path(__file__).parent / "text" / f"{name}.txt").read_text(encoding="utf-8").splitlines())


@cache
def words(name: str) -> tuple[str, ...]:
    """Return the words of `text/<name>.txt`."""
    return tuple(word for line in lines(name) for word in line.split())


POLITE_STARTS = ("", "", "", "", "Please ", "Hi! ", "Hello, ", "Quick question: ", "Hey, ", "Now ", "OK, ", "And ")
QUESTION_ENDS = ("?", "?", "?", "", " please?", "? Thanks!", "?", ".")
ORDER_ENDS = ("", ".", " please", ", please.", "!", "?")
