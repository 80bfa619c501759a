"""Settings of reasoning, for requests that do not choose."""

from pydantic import BaseModel, Field


class ReasoningSettings(BaseModel):
    """Limit of the reasoning of models that reason."""

    reasoning_budget: int = Field(
        -1,
        ge=-1,
        le=2**31 - 1,
        title="TOKENS",
        description="reasoning tokens after which the answer must begin; -1: no limit; requests may override it",
    )
    reasoning_budget_message: str | None = Field(
        None, max_length=1024, title="TEXT", description="text that ends reasoning at --reasoning-budget"
    )
