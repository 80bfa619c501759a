"""Everything of a model that its prompts depend on. Prompts can be rendered from it in any process."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from engine import ModelInfo, RequestError
from gateway.chat.reasoning import NO_LIMIT, ReasoningDefaults
from gateway.chat.template import current_dates


@dataclass(frozen=True, slots=True)
class TemplateDefaults:
    """The operator's defaults for all prompts of a model."""

    parse_special: bool = False
    """The default of `Conversation.parse_special`."""
    variables: str = "{}"
    """Variables of the template that requests may replace, as a JSON object."""
    dated: bool = False
    """True to add llama.cpp's variables with the current date."""
    reasoning: ReasoningDefaults = NO_LIMIT
    """Limit of the reasoning for conversations without one."""

    def current_variables(self) -> Mapping[str, Any]:
        """Return the variables for one prompt. No other prompt has them, because a template can change its lists."""
        return {**(current_dates() if self.dated else {}), **orjson.loads(self.variables)}


NO_DEFAULTS = TemplateDefaults()


@dataclass(frozen=True, slots=True)
class TemplateKey:
    """Everything of a model that its prompts depend on. Equal keys render equal prompts."""

    source: str
    """Jinja source of the template."""
    tool_source: str | None = None
    """Jinja source of the template for requests with tools, if there is another one for them."""
    bos: str = ""
    """Text of the beginning-of-sequence token."""
    eos: str = ""
    """Text of the end-of-sequence token."""
    special_tokens: tuple[tuple[str, int], ...] = ()
    """Names and ids of the control tokens and of the user-defined tokens."""
    control_names: tuple[str, ...] = ()
    """Names that are plain in the texts of clients."""
    turns: bool = False
    """True to find the turns of each prompt."""
    defaults: TemplateDefaults = NO_DEFAULTS
    """What requests may replace."""


def template_key(
    model: ModelInfo, override: str | None = None, defaults: TemplateDefaults = NO_DEFAULTS
) -> TemplateKey:
    """Return the key of a model's templates.

    Args:
        model: the model that the prompts are for.
        override: source of a template that replaces the model's own.
        defaults: what requests may replace.

    Raises:
        RequestError: if there is no template, which a model that does not generate need not have.
    """
    source = override or model.chat_template
    if not source:
        if not model.generates:
            raise RequestError("This model does not generate text.", code="unsupported_model", param="model")
        message = "This model has no chat template. Start the server with --chat-template FILE to give it one."
        raise RequestError(message, code="chat_template_missing", param="messages")
    return TemplateKey(
        source=source,
        tool_source=None if override else model.tool_template,
        bos=model.bos,
        eos=model.eos,
        special_tokens=tuple(model.special_tokens.items()),
        control_names=model.control_names,
        turns=model.checkpoints,
        defaults=defaults,
    )
