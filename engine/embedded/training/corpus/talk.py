"""Examples of greetings, of questions about the model, and of unsupported requests, which it refuses."""

from collections.abc import Callable, Sequence

from engine.embedded.training.corpus.draw import Draw
from engine.embedded.training.corpus.example import Completion, Exchange, exchange
from engine.embedded.training.corpus.wordings import POLITE_STARTS, lines

GREETING = "Hello! I am a tiny demonstration model. Ask me to add two numbers below 100."
IDENTITY = (
    "I am tiny, the demonstration model of llama-gateway. "
    "I can add two numbers below 100, repeat a quoted phrase, count to 200 and call a tool."
)
REFUSAL = "I am only a tiny demonstration model and cannot help with that."
FAREWELL = "Goodbye!"
WELCOME = "You are welcome."

_FAREWELLS = ("bye", "goodbye", "see you", "see you later", "good night", "bye bye", "farewell", "until next time")
_THANKS = (
    "thanks",
    "thank you",
    "thank you very much",
    "thanks a lot",
    "many thanks",
    "great, thanks",
    "thank you so much",
)
_ENDS = ("", ".", "!", "?", "??", "!!", " :)", " please")
_BARE = ("{phrase}", "{phrase}", "{phrase}", "{word}", "{word} {word}")


def greeting(draw: Draw) -> Exchange:
    """Return a greeting, thanks or a goodbye, and its answer."""
    answer = draw.weighted({GREETING: 0.7, WELCOME: 0.15, FAREWELL: 0.15})
    asked = {GREETING: lines("greetings"), WELCOME: _THANKS, FAREWELL: _FAREWELLS}[answer]
    return exchange(draw.sentence(asked, _ENDS), answer)


def identity(draw: Draw) -> Exchange:
    """Return a question about the model, and the true answer."""
    return exchange(draw.sentence(POLITE_STARTS, lines("identity_questions"), _ENDS), IDENTITY)


def other(draw: Draw) -> Exchange:
    """Return an unsupported question, and the refusal."""
    return _refused(draw, lines("other_questions"))


def bare(draw: Draw) -> Exchange:
    """Return a few words without a request, and the refusal."""
    return _refused(draw, _BARE)


def long(draw: Draw) -> Exchange:
    """Return many words without a request, and the refusal."""
    return exchange(" ".join(draw.phrase(12) for _ in range(draw.number(4, 16))), REFUSAL)


def too_large(draw: Draw) -> Exchange:
    """Return a sum that is too large, and the refusal."""
    return _refused(draw, lines("too_large"))


def about_weather(draw: Draw) -> Exchange:
    """Return a question that needs a tool, and the refusal."""
    return _refused(draw, lines("weather_questions"))


def completion(draw: Draw) -> Completion:
    """Return a bare prompt that is not a sum, and the refusal."""
    return Completion(_filled(draw, draw.sentence(lines("other_questions"))), f" {REFUSAL}")


def _refused(draw: Draw, questions: Sequence[str]) -> Exchange:
    return exchange(_filled(draw, draw.sentence(POLITE_STARTS, questions, _ENDS)), REFUSAL)


def _filled(draw: Draw, wording: str) -> str:
    """Return `wording` with all placeholders filled."""
    fillings: dict[str, Callable[[], str]] = {
        "{word}": draw.word,
        "{place}": draw.place,
        "{phrase}": lambda: draw.phrase(12).replace('"', "").replace("'", ""),
        "{number}": lambda: str(draw.number(0, 99)),
        "{large}": lambda: str(draw.number(100, draw.any((999, 9_999, 999_999)))),
        "{above}": lambda: str(draw.number(201, draw.any((299, 999, 99_999)))),
    }
    for slot, filling in fillings.items():
        while slot in wording:
            wording = wording.replace(slot, filling(), 1)
    return wording
