"""Training corpus: generated, endless, and determined by the seed."""

from collections.abc import Callable, Iterator

from engine.embedded.training.corpus import calling, counting, quotes, sums, talk
from engine.embedded.training.corpus.draw import Draw
from engine.embedded.training.corpus.example import Completion, Conversation, Example, Exchange
from engine.embedded.training.template import Message

COMPLETIONS: dict[Callable[[Draw], Completion], float] = {
    sums.completion: 970,
    talk.completion: 28,
    counting.completion: 2,
}
TALK: dict[Callable[[Draw], Exchange], float] = {
    sums.asked: 40,
    quotes.asked: 40,
    quotes.asked_shortly: 20,
    talk.greeting: 9,
    talk.identity: 5,
    talk.other: 17,
    talk.bare: 2,
    talk.too_large: 2,
    talk.about_weather: 1,
    talk.long: 0.7,
    counting.asked: 6,
}
AMONG_TOOLS: tuple[Callable[[Draw], Exchange], ...] = (talk.other, talk.greeting, talk.identity, quotes.asked)


def first_lessons(draw: Draw) -> Iterator[Example]:
    """Yield endless examples of sums and phrases only: adding and copying help with all other skills."""
    lessons: dict[Callable[[Draw], Exchange], float] = {quotes.asked_shortly: 6, quotes.asked: 3, sums.asked: 1}
    while True:
        yield sums.completion(draw) if draw.chance(0.6) else Conversation(draw.weighted(lessons)(draw))


def examples(draw: Draw) -> Iterator[Example]:
    """Yield endless examples of the main mixture: by tokens, one sixth completions, and two equal other parts."""
    mixture: dict[Callable[[Draw], Example], float] = {
        completion: 0.70,
        conversation: 0.25,
        conversation_with_tools: 0.05,
    }
    while True:
        yield draw.weighted(mixture)(draw)


def last_lessons(draw: Draw) -> Iterator[Example]:
    """Yield endless examples with more counting: its end is one token among many, and is learned last."""
    usual = examples(draw)
    while True:
        yield Conversation(counting.asked(draw)) if draw.chance(0.08) else next(usual)


def polish(draw: Draw) -> Iterator[Example]:
    """Yield endless examples with more hard or rare cases: strange phrases, long chats, counting to 200."""
    usual = last_lessons(draw)
    hard: dict[Callable[[Draw], Exchange], float] = {
        quotes.asked_strangely: 25,
        _long_chat: 2,
        counting.asked_to_the_end: 1.5,
    }
    while True:
        yield Conversation(draw.weighted(hard)(draw)) if draw.chance(0.28) else next(usual)


def completion(draw: Draw) -> Completion:
    """Return a bare prompt and its completion."""
    return draw.weighted(COMPLETIONS)(draw)


def conversation(draw: Draw) -> Conversation:
    """Return a few exchanges without tools, in rare cases many."""
    turns = draw.any((1, 1, 1, 1, 2, 2, 3, 4)) if draw.chance(0.98) else draw.number(8, 24)
    return Conversation(_system(draw) + _joined(draw.weighted(TALK)(draw) for _ in range(turns)))


def conversation_with_tools(draw: Draw) -> Conversation:
    """Return a few exchanges with tools in the request; most need one of them."""
    adds, forecasts = draw.any(((True, False), (False, True), (True, True), (True, True), (True, True)))
    writers = list(AMONG_TOOLS)
    tools = [calling.unrelated(draw) for _ in range(draw.any((0, 0, 0, 1, 2)))]
    for offered, make, otherwise in (
        (adds, calling.adder, sums.asked),
        (forecasts, calling.forecaster, talk.about_weather),
    ):
        job = make(draw)
        if offered:
            tools.append(job.tool)
        writers += [job.exchange] * 6 if offered else [otherwise]
    draw.random.shuffle(tools)
    exchanges = _joined(draw.any(writers)(draw) for _ in range(draw.number(1, 4)))
    return Conversation(_system(draw) + exchanges, tuple(tools))


def _long_chat(draw: Draw) -> Exchange:
    return _joined(draw.any((sums.asked, quotes.asked, talk.other))(draw) for _ in range(draw.number(8, 24)))


def _joined(exchanges: Iterator[Exchange]) -> Exchange:
    return tuple(message for one in exchanges for message in one)


def _system(draw: Draw) -> tuple[Message, ...]:
    """Return a system message or no message. Its text has no effect on the answers."""
    if draw.chance(0.8):
        return ()
    usual = ("You are a helpful assistant.", "You are a helpful assistant.", "You are tiny.", "Be brief.")
    return ({"role": "system", "content": draw.any(usual) if draw.chance(0.6) else f"You are {draw.phrase(6)}."},)
