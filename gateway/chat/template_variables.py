"""Variables that clients pass to a chat template beside the conversation."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, Field

RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
"""Names of variables that clients cannot set, since other fields determine them."""

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""Amount of reasoning that the client asks for."""

EFFORTS: tuple[str, ...] = get_args(Effort)
"""All amounts, in their order."""
NO_THINK = "no_think"
"""Name of "none" in Hunyuan's template."""

Verbosity: TypeAlias = Literal["low", "medium", "high"]
"""Length of the answer that the client asks for."""

_KIMI_EFFORTS = {"minimal": "low", "low": "low", "medium": "high", "high": "high", "xhigh": "max", "max": "max"}
"""Efforts of Kimi K3, whose template refuses others and has "max" without any."""

_STRENGTHS = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "xhigh",
}
"""Strengths of Muse Glimmer's reasoning, which it always has: without a strength it is "high"."""

PARSE_SPECIAL = (
    "Names of control tokens in the client's texts become these tokens. Default: as the server was started, by "
    "`--parse-special`."
)
"""Description of the request field `parse_special`."""


def _free_names(variables: dict[str, Any]) -> dict[str, Any]:
    if taken := RESERVED & variables.keys():
        raise ValueError(f"should not have {min(taken)}, which follows from other fields")
    return variables


TemplateKwargs: TypeAlias = Annotated[
    dict[str, Any],
    AfterValidator(_free_names),
    Field(json_schema_extra={"propertyNames": {"not": {"enum": sorted(RESERVED)}}}),
]
"""The request field `chat_template_kwargs`, as in vLLM and llama-server."""


def template_variables(
    effort: Effort | None, verbosity: Verbosity | None, kwargs: Mapping[str, Any], **more: object
) -> Mapping[str, Any]:
    """Return the variables that are set. `kwargs` win over others of the same name.

    The effort "none" turns reasoning off where the template supports that.
    """
    variables = {
        **more,
        "reasoning_effort": effort,
        "verbosity": verbosity,
        "enable_thinking": False if effort == "none" else None,
    }
    return {**{name: value for name, value in variables.items() if value is not None}, **kwargs}


def with_fitting_effort(variables: Mapping[str, Any], taken: Sequence[str]) -> Mapping[str, Any]:
    """Return variables with the nearest effort that a template takes, the higher of two.

    "none" is left out where the template has no name for it, and does not take "minimal". A template with the name of
    Hunyuan's does not reason without an effort, so that the switch alone is a medium one.

    Args:
        variables: the variables.
        taken: the efforts that it takes, in their order; empty if it takes all.
    """
    if variables.get("enable_thinking") is True and NO_THINK in taken:
        variables = {"reasoning_effort": "medium", **variables}
    effort = _effort(variables)
    if not taken or effort in taken or effort not in EFFORTS:
        return variables
    others = {name: value for name, value in variables.items() if name != "reasoning_effort"}
    if effort == "none":
        least = next((name for name in (NO_THINK, "minimal") if name in taken), None)
        return others if least is None else {**others, "reasoning_effort": least}
    wanted = EFFORTS.index(effort)
    ranks = [EFFORTS.index(one) for one in taken if one not in {"none", NO_THINK}]
    nearest = min(ranks, key=lambda rank: (abs(rank - wanted), -rank), default=None)
    return others if nearest is None else {**others, "reasoning_effort": EFFORTS[nearest]}


def with_other_names(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return variables with the switch and the effort of reasoning under their other names, too, unless these are set.

    Granite, Kimi K3 and DeepSeek's own templates read `thinking`, that of MiniMax M3 `thinking_mode`, and that of Kimi
    K3 `thinking_effort`. Muse Glimmer's reads `reasoning_strength`.
    """
    others: dict[str, object] = {}
    if isinstance(on := variables.get("enable_thinking"), bool):
        others |= {"thinking": on, "thinking_mode": "enabled" if on else "disabled"}
    if isinstance(effort := _effort(variables), str):
        if effort in _KIMI_EFFORTS:
            others["thinking_effort"] = _KIMI_EFFORTS[effort]
        if effort in _STRENGTHS:
            others["reasoning_strength"] = _STRENGTHS[effort]
    return {**others, **variables}


def _effort(variables: Mapping[str, Any]) -> object:
    """Return the effort of reasoning: "none" where it is only switched off, None if the variables have neither."""
    return variables.get("reasoning_effort", "none" if variables.get("enable_thinking") is False else None)
