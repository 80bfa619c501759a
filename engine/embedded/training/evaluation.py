"""Evaluation of the model's skills on inputs that training never saw.

The model is passed as two functions, so that the same cases evaluate a file with llama.cpp and a server over HTTP.
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
    """One test case."""

    skill: str
    """Name of the tested skill, a key of `THRESHOLDS`."""
    asked: Example
    """Prompt or conversation."""
    expected: str
    """Correct answer."""


@dataclass(frozen=True)
class Score:
    """Result of one skill."""

    skill: str
    """Name of the skill."""
    tried: int
    """Number of cases."""
    right: int
    """Number of correct answers."""

    @property
    def rate(self) -> float:
        """Share of correct answers."""
        return self.right / self.tried

    @property
    def passed(self) -> bool:
        """True if the share reaches the threshold of the skill."""
        return self.rate >= THRESHOLDS[self.skill]


def as_text(message: Message) -> str:
    """Return an assistant's message as generated text: tool calls in the format of the template."""
    calls = message.get("tool_calls") or ()
    return (message.get("content") or "") + "\n".join(_call_text(call["function"]) for call in calls)


def _call_text(function: dict[str, str]) -> str:
    return f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}\n</tool_call>'


def _called(text: str) -> object:
    """Return the tool call if `text` is exactly one, else None."""
    found = re.fullmatch(r"\s*<tool_call>\s*(\{.*\})\s*</tool_call>\s*", text, re.DOTALL)
    try:
        return json.loads(found.group(1)) if found else None
    except ValueError:
        return None


def is_right(case: Case, answer: str) -> bool:
    """Return True if `answer` is correct: the same tool call if a call is expected, else the same text."""
    wanted = _called(case.expected)
    return answer == case.expected if wanted is None else _called(answer) == wanted


def cases(each: int, seed: int = 0) -> Iterator[Case]:
    """Yield `each` cases of every skill, all from the held-out set."""
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
    """Return a conversation for `skill`, and the index of the message that the model must generate."""
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
    """Return the model's answer to a case."""
    match case.asked:
        case Completion(prompt, _):
            return complete(prompt)
        case Conversation(messages, tools):
            return chat(messages, tools)


def evaluate(chosen: Iterable[Case], complete: Complete, chat: Chat) -> list[Score]:
    """Return a score for each skill of the chosen cases, in their order."""
    tried, right = Counter[str](), Counter[str]()
    for case in chosen:
        tried[case.skill] += 1
        right[case.skill] += is_right(case, answer(case, complete, chat))
    return [Score(skill, tried[skill], right[skill]) for skill in tried]


def table(scores: Iterable[Score]) -> str:
    """Return the scores as a text table."""
    lines = [f"{'skill':<30} {'right':>11} {'rate':>7} {'wanted':>7}"]
    for score in scores:
        right = f"{score.right}/{score.tried}"
        wanted, verdict = THRESHOLDS[score.skill], "" if score.passed else "  too low"
        lines.append(f"{score.skill:<30} {right:>11} {score.rate:>7.1%} {wanted:>7.0%}{verdict}")
    return "\n".join(lines)
