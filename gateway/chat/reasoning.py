"""The model's reasoning: its limit, and its continuation where a last message has reasoning and no content."""

from dataclasses import dataclass

from engine import Reasoning
from gateway.chat.formats.format import Format
from gateway.chat.formats.parser import Tags
from gateway.chat.template_capabilities import TemplateMessage


@dataclass(frozen=True, slots=True)
class ReasoningDefaults:
    """The operator's limit of reasoning."""

    budget: int = -1
    """The default of `Conversation.reasoning_budget`."""
    message: str = ""
    """The default of `Conversation.reasoning_message`."""

    def reasoning(
        self, family: Format, budget: int | None, message: str | None, *, opened: bool, controlled: bool, called: bool
    ) -> Reasoning | None:
        """Return the place and the end of the reasoning in an answer; None if the family does not reason.

        Args:
            family: output format of the model.
            budget: maximum number of tokens; -1 sets no limit, None takes this one.
            message: text at the limit; None takes this one.
            opened: True if the prompt ends inside reasoning.
            controlled: True if the client may end the reasoning.
            called: True if a call in the reasoning ends it.
        """
        tags = family.reasoning_tags
        if tags is None:
            return None
        limit = self.budget if budget is None else budget
        return Reasoning(
            budget=None if limit < 0 else limit,
            message=self.message if message is None else message,
            opening=tags.opening,
            between=family.between_messages,
            closing=tags.closing,
            call=family.opening if called else "",
            opened=opened,
            controlled=controlled,
        )


NO_LIMIT = ReasoningDefaults()


def reasoning_to_continue(message: TemplateMessage, family: Format) -> str:
    """Return the reasoning that a continued message ends in; empty if it ends in its content.

    Args:
        message: the last message.
        family: output format of the model.
    """
    if family.reasoning_tags is None or message["content"]:
        return ""
    reasoning: str = message.get("reasoning_content") or ""
    return reasoning


def opened_reasoning(prompt: str, family: Format, tags: Tags) -> str:
    """Return a prompt that ends where an answer begins, so that it ends inside reasoning.

    Reasoning that the template has closed at once, or only has closed, is opened again.
    """
    bare = prompt.rstrip()
    begun = bare.removesuffix(tags.closing) if bare.endswith(tags.closing) else prompt
    return begun if family.opens_thinking(begun) else f"{begun}{tags.opening}\n"
