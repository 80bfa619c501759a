"""The variables by which clients tell a chat template more than the conversation."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field

RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
"""Those that no client sets directly."""

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much the model is to think."""

Verbosity: TypeAlias = Literal["low", "medium", "high"]
"""How much it is to say."""


def _free_names(variables: dict[str, Any]) -> dict[str, Any]:
    if taken := RESERVED & variables.keys():
        raise ValueError(f"should not have {min(taken)}, which follows from other fields")
    return variables


TemplateKwargs: TypeAlias = Annotated[
    dict[str, Any],
    AfterValidator(_free_names),
    Field(json_schema_extra={"propertyNames": {"not": {"enum": sorted(RESERVED)}}}),
]
"""The field `chat_template_kwargs`, as vLLM and llama-server have it."""


def template_variables(
    effort: Effort | None, verbosity: Verbosity | None, kwargs: Mapping[str, Any], **more: object
) -> Mapping[str, Any]:
    """All that are given, those of `kwargs` before others of the same names.

    Without effort there is no thinking, where a template can do that.
    """
    variables = {
        **more,
        "reasoning_effort": effort,
        "verbosity": verbosity,
        "enable_thinking": False if effort == "none" else None,
    }
    return {**{name: value for name, value in variables.items() if value is not None}, **kwargs}
