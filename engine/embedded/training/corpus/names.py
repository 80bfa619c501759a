"""Words and names, real or invented."""

import random
from string import ascii_lowercase, ascii_uppercase, digits

from engine.embedded.training.corpus.wordings import lines, words

_ONSETS = words("onsets")
_VOWELS = words("vowels")
_CODAS = ("", "", *words("codas"))
_OTHER_SCRIPTS = words("other_scripts")
_MARKS = "!#$%&()*+,-./:;<=>?@[]^_{|}~'"


def common(source: random.Random) -> str:
    """Return an English word."""
    return source.choice(words("common_words"))


def invented(source: random.Random) -> str:
    """Return a meaningless word of one to three syllables."""
    syllables = range(source.choice((1, 2, 2, 3)))
    return "".join(source.choice(_ONSETS) + source.choice(_VOWELS) + source.choice(_CODAS) for _ in syllables)


def jumble(source: random.Random) -> str:
    """Return one to eight different characters of one kind: letters, digits, printable ones, or another script."""
    latin = (ascii_lowercase, ascii_uppercase, digits, ascii_lowercase + digits + _MARKS)
    characters = source.choice((*latin, source.choice(_OTHER_SCRIPTS)))
    return "".join(source.sample(characters, k=source.randint(1, min(8, len(characters)))))


def number(source: random.Random) -> str:
    """Return a number of one to four digits."""
    return str(source.randrange(10 ** source.randint(1, 4)))


def town(source: random.Random) -> str:
    """Return the name of a real town."""
    return source.choice(lines("places"))


def invented_town(source: random.Random) -> str:
    """Return the name of an invented town, of one or two words."""
    return source.choice(("", "", "", "", "", "New ", "Port ", "San ", "Upper ")) + invented(source).capitalize()
