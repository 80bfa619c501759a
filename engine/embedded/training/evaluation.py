"""What the model must be able to do, judged on inputs that training never saw.

The model is given as two functions, so that the same cases judge a file through llama.cpp and a server through HTTP.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.embedded.training.corpus import calling, counting, quotes, sums, talk
from engine.embedded.training.corpus.draw import Draw
from engine.embedded.training.corpus.example import Completion, Conversation, Example
from engine.embedded.training.template import Message, Tool

Complete = Callable[[str], str]
Chat = Callable[[Sequence[Message], Sequence[Tool]], str]

THRESHOLDS = {
    "completes a sum": 0.99,
    "answers a sum": 0.97,
    "repeats a phrase": 0.95,
    "greets": 0.95,
    "says what it is": 0.95,
    "admits what it cannot do": 0.95,
    "counts": 0.95,
    "calls the right tool": 0.95,
    "answers from a tool's result": 0.95,
    "answers without a tool": 0.95,
    "answers late in a long chat": 0.90,
}


@dataclass(frozen=True)
class Case:
    """A prompt or a conversation, the skill that it tries, and the answer that is right."""

    skill: str
    asked: Example
    expected: str


@dataclass(frozen=True)
class Score:
    """How many cases of one skill were tried, and how many were right."""

    skill: str
    tried: int
    right: int

    @property
    def rate(self) -> float:
        """The share that was right."""
        return self.right / self.tried

    @property
    def passed(self) -> bool:
        """Whether the share reaches the skill's threshold."""
        return self.rate >= THRESHOLDS[self.skill]


def as_text(message: Message) -> str:
    """An assistant's message as the model writes it: tool calls in the template's format."""
    calls = message.get("tool_calls") or ()
    return (message.get("content") or "") + "\n".join(_call_text(call["function"]) for call in calls)


def _call_text(function: dict[str, str]) -> str:
    return f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}\n</tool_call>'


def _called(text: str) -> object:
    """The call that `text` consists of, or None."""
    found = re.fullmatch(r"\s*<tool_call>\s*(\{.*\})\s*</tool_call>\s*", text, re.DOTALL)
    try:
        return json.loads(found.group(1)) if found else None
    except ValueError:
        return None


def is_right(case: Case, answer: str) -> bool:
    """Whether `answer` is the expected one: the same call if a call is expected, else the same text."""
    wanted = _called(case.expected)
    return answer == case.expected if wanted is None else _called(answer) == wanted


def cases(each: int, seed: int = 0) -> Iterator[Case]:
    """`each` cases of every skill, all from what is held out."""
    draw = Draw(seed, held_out=True)
    for skill in THRESHOLDS:
        for _ in range(each):
            yield _case(skill, draw)


def _case(skill: str, draw: Draw) -> Case:
    if skill == "completes a sum":
        completion = sums.completion(draw)
        return Case(skill, completion, completion.answer)
    conversation, asked = _conversation(skill, draw)
    *before, answer = conversation.messages[: asked + 1]
    return Case(skill, Conversation(tuple(before), conversation.tools), as_text(answer))


def _conversation(skill: str, draw: Draw) -> tuple[Conversation, int]:
    """A conversation for `skill`, and which of its messages is to be given."""
    simple = {
        "answers a sum": sums.asked,
        "repeats a phrase": quotes.asked,
        "greets": talk.greeting,
        "says what it is": talk.identity,
        "admits what it cannot do": talk.other,
        "counts": counting.asked,
    }
    if skill in simple:
        return Conversation(simple[skill](draw)), 1
    if skill == "answers late in a long chat":
        earlier = sum((draw.any((sums.asked, quotes.asked, talk.other))(draw) for _ in range(16)), ())
        return Conversation(earlier + draw.any((sums.asked, quotes.asked))(draw)), len(earlier) + 1
    jobs = [calling.adder(draw), calling.forecaster(draw)]
    draw.random.shuffle(jobs)
    tools = tuple(job.tool for job in jobs)
    if skill == "answers without a tool":
        return Conversation(draw.any((talk.greeting, talk.identity, talk.other, quotes.asked))(draw), tools), 1
    return Conversation(draw.any(jobs).exchange(draw), tools), 1 if skill == "calls the right tool" else 3


def answer(case: Case, complete: Complete, chat: Chat) -> str:
    """The model's answer to a case."""
    match case.asked:
        case Completion(prompt, _):
            return complete(prompt)
        case Conversation(messages, tools):
            return chat(messages, tools)


def evaluate(chosen: Iterable[Case], complete: Complete, chat: Chat) -> list[Score]:
    """A score for each skill among the chosen cases, in their order."""
    tried, right = Counter[str](), Counter[str]()
    for case in chosen:
        tried[case.skill] += 1
        right[case.skill] += is_right(case, answer(case, complete, chat))
    return [Score(skill, tried[skill], right[skill]) for skill in tried]


def table(scores: Iterable[Score]) -> str:
    """The scores as lines of text."""
    lines = [f"{'skill':<30} {'right':>11} {'rate':>7} {'wanted':>7}"]
    for score in scores:
        right = f"{score.right}/{score.tried}"
        wanted, verdict = THRESHOLDS[score.skill], "" if score.passed else "  too low"
        lines.append(f"{score.skill:<30} {right:>11} {score.rate:>7.1%} {wanted:>7.0%}{verdict}")
    return "\n".join(lines)
