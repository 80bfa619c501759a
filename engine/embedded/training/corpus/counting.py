"""Examples of counting: long answers that are easy to check."""

from collections.abc import Sequence

from engine.embedded.training.corpus.draw import Draw
from engine.embedded.training.corpus.example import Completion, Exchange, exchange
from engine.embedded.training.corpus.wordings import ORDER_ENDS

LAST = 200

_STARTS = ("", "", "", "Please ", "Can you ", "Now ", "Hi, ")
_FROM_ONE = ("count to {b}", "count up to {b}", "count from 1 to {b}", "list the numbers from 1 to {b}")
_FROM_ANY = ("count from {a} to {b}", "count up from {a} to {b}", "list the numbers from {a} to {b}")


def numbers(first: int, last: int) -> str:
    """Return the numbers from `first` to `last`, both included, separated by blanks."""
    return " ".join(map(str, range(first, last + 1)))


def asked(draw: Draw) -> Exchange:
    """Return a request to count, and the numbers."""
    bodies, ends = draw.weighted({(_FROM_ONE, (1, 1, LAST)): 0.25, (_FROM_ANY, (0, LAST - 1, 20)): 0.75})
    return _asked(draw, bodies, *_span(draw, *ends))


def asked_to_the_end(draw: Draw) -> Exchange:
    """Return a request to count to 200, the supported maximum, and the numbers."""
    if draw.chance(0.5):
        return _asked(draw, _FROM_ONE, 1, LAST)
    while not draw.allows(f"{(first := draw.number(0, LAST - 1))} to {LAST}"):
        pass
    return _asked(draw, _FROM_ANY, first, LAST)


def _asked(draw: Draw, bodies: Sequence[str], first: int, last: int) -> Exchange:
    wording = draw.sentence(_STARTS, bodies, ORDER_ENDS)
    return exchange(wording.replace("{a}", str(first)).replace("{b}", str(last)), numbers(first, last))


def _span(draw: Draw, lowest: int, highest: int, longest: int) -> tuple[int, int]:
    """Return a first number from `lowest` to `highest`, and a last one at most `longest` - 1 above it."""
    while True:
        first = draw.number(lowest, highest)
        last = draw.number(first, min(LAST, first + longest - 1))
        if draw.allows(f"{first} to {last}"):
            return first, last


def completion(draw: Draw) -> Completion:
    """Return a run of numbers to continue up to 200."""
    first = draw.number(0, LAST - 6)
    last = draw.number(first + 2, first + 5)
    return Completion(numbers(first, last), "".join(f" {number}" for number in range(last + 1, LAST + 1)))
