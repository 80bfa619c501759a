"""What the model learns from, and what it is judged by."""

from dataclasses import dataclass

from engine.embedded.training.template import Message, Tool


@dataclass(frozen=True)
class Completion:
    """A bare prompt and how it goes on. The end-of-text token follows the answer."""

    prompt: str
    answer: str


@dataclass(frozen=True)
class Conversation:
    """Messages, and the tools that the request offers. Every assistant message is something to learn."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()


Example = Completion | Conversation
Exchange = tuple[Message, ...]


def exchange(question: str, answer: str) -> Exchange:
    """A user's message and the assistant's answer to it."""
    return {"role": "user", "content": question}, {"role": "assistant", "content": answer}
