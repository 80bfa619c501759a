"""Configuration of the model's thinking."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from gateway.apis.fields.nested import Nested, read_kind
from gateway.apis.fields.sampling import MAX_INT


class _Shown(Nested):
    display: Literal["summarized", "omitted"] | None = None


class EnabledThinking(_Shown):
    """The model thinks within a budget. Budgets below Anthropic's least one, 1,024, are accepted, too."""

    type: Literal["enabled"]
    budget_tokens: int = Field(ge=0, le=MAX_INT)


class AdaptiveThinking(_Shown):
    """The model decides whether it thinks, as its chat template lets it."""

    type: Literal["adaptive", "between_tools"]


class DisabledThinking(Nested):
    """The model does not think, if its chat template can prevent that."""

    type: Literal["disabled"]


Thinking: TypeAlias = EnabledThinking | AdaptiveThinking | DisabledThinking

_KINDS: dict[str, type[Thinking]] = {
    "enabled": EnabledThinking,
    "adaptive": AdaptiveThinking,
    "between_tools": AdaptiveThinking,
    "disabled": DisabledThinking,
}


def _read(value: object) -> Thinking:
    return read_kind(_KINDS, value, "thinking")


ThinkingField: TypeAlias = Annotated[Thinking, BeforeValidator(_read, json_schema_input_type=Thinking)]


def variables_of(thinking: Thinking | None) -> dict[str, bool]:
    """Return the variables for the chat template."""
    match thinking:
        case EnabledThinking():
            return {"enable_thinking": True}
        case DisabledThinking():
            return {"enable_thinking": False}
    return {}
