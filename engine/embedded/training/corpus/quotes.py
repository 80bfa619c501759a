"""Examples of quoted phrases, to be repeated word for word."""

from engine.embedded.training.corpus.draw import Draw
from engine.embedded.training.corpus.example import Exchange, exchange
from engine.embedded.training.corpus.wordings import ORDER_ENDS, lines

LONGEST = 12

_STARTS = ("", "", "", "Please ", "Can you ", "Now ", "Hi! ", "Could you ", "OK, ")
_MARKS = ('"{}"', '"{}"', '"{}"', '"{}"', "“{}”", "'{}'")


def asked(draw: Draw) -> Exchange:
    """Return a request to repeat a phrase of one to twelve words, and the phrase."""
    return _asked(draw, draw.phrase(LONGEST))


def asked_shortly(draw: Draw) -> Exchange:
    """Return a request to repeat a phrase of one to three words, and the phrase."""
    return _asked(draw, draw.phrase(3))


def asked_strangely(draw: Draw) -> Exchange:
    """Return a request to repeat one to twelve meaningless words, and the words."""
    return _asked(draw, " ".join(draw.strange_word() for _ in range(draw.number(1, LONGEST))))


def _asked(draw: Draw, phrase: str) -> Exchange:
    marks = '"{}"' if "'" in phrase else draw.any(_MARKS)
    wording = draw.sentence(_STARTS, lines("quote_orders"), ORDER_ENDS)
    return exchange(wording.replace("{q}", marks.replace("{}", phrase)), phrase)
