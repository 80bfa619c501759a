"""The turns of a rendered conversation: positions up to which later prompts are likely to repeat it."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from engine import PromptText, RequestError, text_of
from gateway.chat.conversation import ChatModel, ChatPrompt, Conversation
from gateway.chat.template_capabilities import INSTRUCTIONS

_OTHER = "\ue001"
"""Begins a content that differs from the client's. A private-use character, which no template looks for."""


def with_turns(prompt: ChatPrompt, conversation: Conversation, model: ChatModel) -> ChatPrompt:
    """Return the prompt of a conversation with its turns. Takes as long as two or three further prompts.

    A turn is where the prompts of this conversation and of a changed one part.
    """
    text = text_of(prompt.text)
    found: set[int] = set()
    for varied in _variations(conversation):
        with suppress(RequestError):  # a template may refuse what is no whole conversation
            found.add(_common_length(text, text_of(model.text(varied))))
    plain = prompt.text.plain if isinstance(prompt.text, PromptText) else ()
    return replace(prompt, text=PromptText(text, plain, tuple(sorted(found - {0, len(text)}))))


def _variations(conversation: Conversation) -> Iterator[Conversation]:
    """Yield conversations that begin like this one.

    They differ in the first message after the instructions, which others may share; in the first message of the last
    turn, which an edit replaces; and where the answer begins, which a later prompt may show otherwise.
    """
    messages = conversation.messages
    for at in sorted({_first(conversation), _last_turn(conversation)}) if messages else ():
        changed = {**messages[at], "content": _OTHER + (messages[at]["content"] or "")}
        yield replace(conversation, messages=(*messages[:at], changed, *messages[at + 1 :]))
    if conversation.open_answer and not conversation.continue_final:
        yield replace(conversation, open_answer=False)


def _common_length(text: str, other: str) -> int:
    """Return the number of first characters that two texts have in common."""
    low, high = 0, min(len(text), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if text[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _first(conversation: Conversation) -> int:
    """Return the index of the first message that is not an instruction."""
    roles = [message["role"] for message in conversation.messages]
    return next((at for at, role in enumerate(roles) if role not in INSTRUCTIONS), 0)


def _last_turn(conversation: Conversation) -> int:
    """Return the index of the first message after the model's last one."""
    roles = [message["role"] for message in conversation.messages]
    after = next((len(roles) - at for at, role in enumerate(reversed(roles)) if role == "assistant"), 0)
    return min(max(after, _first(conversation)), len(roles) - 1)
