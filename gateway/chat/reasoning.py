"""Limit of the model's reasoning."""

from dataclasses import dataclass

from engine import Reasoning
from gateway.chat.formats.format import Format


@dataclass(frozen=True, slots=True)
class ReasoningDefaults:
    """The operator's limit of reasoning."""

    budget: int = -1
    """The default of `Conversation.reasoning_budget`."""
    message: str = ""
    """The default of `Conversation.reasoning_message`."""

    def reasoning(
        self, family: Format, budget: int | None, message: str | None, *, opened: bool, controlled: bool
    ) -> Reasoning | None:
        """Return the place and the end of the reasoning in an answer; None if the family does not reason.

        Args:
            family: output format of the model.
            budget: maximum number of tokens; -1 sets no limit, None takes this one.
            message: text at the limit; None takes this one.
            opened: True if the prompt ends inside reasoning.
            controlled: True if the client may end the reasoning.
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
            opened=opened,
            controlled=controlled,
        )


NO_LIMIT = ReasoningDefaults()
