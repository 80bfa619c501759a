"""Examples of tools: calls of the right tool with the right arguments, and answers from its result."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.embedded.training.corpus import sums
from engine.embedded.training.corpus.draw import Draw
from engine.embedded.training.corpus.example import Exchange
from engine.embedded.training.corpus.wordings import POLITE_STARTS, QUESTION_ENDS, lines, words
from engine.embedded.training.template import Message, Tool

_ADDER_FIELDS = (
    *[("a", "b")] * 4,
    *[("x", "y")] * 2,
    ("first", "second"),
    ("left", "right"),
    ("num1", "num2"),
    ("n", "m"),
    ("number1", "number2"),
    ("first_number", "second_number"),
    ("lhs", "rhs"),
)
_FORECASTER_FIELDS = ("city", "city", "location", "location", "place", "town", "where", "name", "city_name", "q")
_CITY_HELP = ("The city", "City name", "The name of the city, e.g. Rome", "A town", "The city to look up")
_UNRELATED = (
    ("get_time", "Get the time.", "timezone"),
    ("send_email", "Send an email.", "to"),
    ("search", "Search the web.", "query"),
    ("set_alarm", "Set an alarm.", "time"),
    ("translate", "Translate a text.", "text"),
    ("play_music", "Play a song.", "title"),
    ("open_file", "Open a file.", "path"),
    ("get_stock_price", "Look up a stock price.", "symbol"),
    ("book_table", "Book a table.", "restaurant"),
)
_SKIES = ("sunny", "cloudy", "rain", "light rain", "snow", "foggy", "clear sky", "windy", "partly cloudy", "storm")
_DEGREES = ("{n} degrees", "{n}°C", "{n} C", "{n} degrees Celsius", "{n}°F", "{n}.5°C")
_REPORTS = ("{d} and {s}", "{s}, {d}", "{s}", "{d}", "{d}, {s}, wind {w} km/h", "It is {s} and {d}.")


@dataclass(frozen=True)
class Job:
    """A tool and a generator of exchanges that need it."""

    tool: Tool
    """Definition of the tool in a request."""
    exchange: Callable[[Draw], Exchange]
    """Returns an exchange that needs the tool."""


def adder(draw: Draw) -> Job:
    """Return a tool that adds, with sums as its exchanges."""
    name, kind = _name(draw, lines("adder_names")), draw.any(("number", "integer"))
    first, second = draw.any(_ADDER_FIELDS) if draw.chance(0.7) else draw.random.sample(words("common_words"), k=2)
    described = {first: _field(draw, kind, "The first number"), second: _field(draw, kind, "The second number")}

    def exchange(draw: Draw) -> Exchange:
        a, b = draw.pair() if draw.chance(0.8) else (draw.number(0, 9_999), draw.number(0, 999))
        result = draw.any(("{}", "{}", "{}", '{{"result": {}}}', '{{"sum": {}}}', "{}.0")).format(a + b)
        return _used(sums.question(draw, a, b), _call(name, {first: a, second: b}), result, f"The answer is {a + b}.")

    return Job(_tool(draw, name, draw.any(lines("adder_descriptions")), described), exchange)


def forecaster(draw: Draw) -> Job:
    """Return a tool that looks up the weather, with questions as its exchanges."""
    name = _name(draw, lines("forecaster_names"))
    field = draw.any(_FORECASTER_FIELDS if draw.chance(0.7) else words("common_words"))
    described = {field: _field(draw, "string", draw.any(_CITY_HELP))}

    def exchange(draw: Draw) -> Exchange:
        place = draw.place()
        question = draw.sentence(POLITE_STARTS, lines("weather_questions"), QUESTION_ENDS).replace("{place}", place)
        result = _report(draw, place)
        return _used(question, _call(name, {field: place}), result, f"The weather in {place}: {result}")

    return Job(_tool(draw, name, draw.any(lines("forecaster_descriptions")), described), exchange)


def _name(draw: Draw, usual: Sequence[str]) -> str:
    """Return a common tool name, or one with another word before or after it, in snake case or camel case."""
    while True:
        word = draw.any(words("common_words"))
        name = draw.any(usual)
        name = draw.weighted({name: 0.4, f"{word}_{name}": 0.3, f"{name}_{word}": 0.3})
        if draw.chance(0.3):
            head, *tail = name.split("_")
            name = head + "".join(part.capitalize() for part in tail)
        if draw.allows(name):
            return name


def unrelated(draw: Draw) -> Tool:
    """Return an unrelated tool, which no exchange needs."""
    name, description, field = draw.any(_UNRELATED)
    return _tool(draw, name, description, {field: _field(draw, "string", f"The {field}")})


def _tool(draw: Draw, name: str, description: str, fields: dict[str, dict[str, str]]) -> Tool:
    """Return the definition of a tool in a request, with or without its optional fields."""
    function: dict[str, object] = {"name": name}
    if draw.chance(0.9):
        function["description"] = description
    parameters: dict[str, object] = {"type": "object", "properties": fields}
    if draw.chance(0.8):
        parameters["required"] = list(fields)
    if draw.chance(0.15):
        parameters["additionalProperties"] = False
    function["parameters"] = parameters
    if draw.chance(0.1):
        function["strict"] = True
    return {"type": "function", "function": function}


def _field(draw: Draw, kind: str, description: str) -> dict[str, str]:
    return {"type": kind, "description": description} if draw.chance(0.4) else {"type": kind}


def _call(name: str, arguments: dict[str, object]) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}


def _used(question: str, call: Message, result: str, answer: str) -> Exchange:
    """Return a question, the tool call, the result of the tool, and the answer."""
    return (
        {"role": "user", "content": question},
        call,
        {"role": "tool", "content": result},
        {"role": "assistant", "content": answer},
    )


def _report(draw: Draw, place: str) -> str:
    """Return a typical result of a weather service: a few words, or JSON."""
    number, sky = draw.number(-20, 45), draw.any(_SKIES)
    degrees = draw.any(_DEGREES).format(n=number)
    record = draw.any(({"temperature": number, "condition": sky}, {"city": place, "temp": degrees, "sky": sky}))
    told = draw.any(_REPORTS).format(d=degrees, s=sky, w=draw.number(0, 90))
    make = {lambda: told: 0.65, lambda: json.dumps(record, ensure_ascii=False): 0.25, lambda: draw.phrase(8): 0.1}
    return draw.weighted(make)()
