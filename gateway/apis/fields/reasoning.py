"""Fields that limit the model's reasoning, with the names of llama-server and of other servers."""

from pydantic import Field, ValidationInfo, field_validator

from gateway.apis.fields.base import Fields
from gateway.apis.fields.sampling import MAX_INT

_SAME = "The same as `reasoning_budget`."


class ReasoningFields(Fields):
    """Limit of the model's reasoning. A model that does not reason ignores it."""

    reasoning_budget: int | None = Field(
        None,
        ge=-1,
        le=MAX_INT,
        description="Maximum number of reasoning tokens: then the engine ends the reasoning, and the answer follows. "
        "-1: no limit. Default: that of `--reasoning-budget`.",
    )
    reasoning_budget_tokens: int | None = Field(None, ge=-1, le=MAX_INT, description=_SAME)
    thinking_budget_tokens: int | None = Field(None, ge=-1, le=MAX_INT, description=_SAME)
    reasoning_budget_message: str | None = Field(
        None,
        max_length=1024,
        description="Text that ends the reasoning at its limit. Default: that of `--reasoning-budget-message`.",
    )

    @field_validator("reasoning_budget_tokens", "thinking_budget_tokens")
    @classmethod
    def _one_budget(cls, budget: int, info: ValidationInfo) -> int:
        others = {info.data.get(name) for name in ("reasoning_budget", "reasoning_budget_tokens")}
        if others - {None, budget}:
            raise ValueError("means the same as reasoning_budget, which has another value")
        return budget

    @property
    def budget(self) -> int | None:
        """The limit, by whichever name it is given; -1 for none, and None for the default."""
        given = (self.reasoning_budget, self.reasoning_budget_tokens, self.thinking_budget_tokens)
        return next((budget for budget in given if budget is not None), None)
