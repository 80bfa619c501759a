"""Examples for training and evaluation."""

from dataclasses import dataclass

from engine.embedded.training.template import Message, Tool


@dataclass(frozen=True)
class Completion:
    """A bare prompt and its completion."""

    prompt: str
    """Prompt without a chat template."""
    answer: str
    """Completion. The end-of-text token follows it."""


@dataclass(frozen=True)
class Conversation:
    """A conversation with optional tools."""

    messages: tuple[Message, ...]
    """Messages. Every assistant message is trained."""
    tools: tuple[Tool, ...] = ()
    """Tools of the request."""


Example = Completion | Conversation
Exchange = tuple[Message, ...]


def exchange(question: str, answer: str) -> Exchange:
    """Return a user's message and the assistant's answer."""
    return {"role": "user", "content": question}, {"role": "assistant", "content": answer}
