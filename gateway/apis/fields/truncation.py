"""Fields that cut long inputs of embeddings and of re-ranking."""

from typing import Literal

from pydantic import Field

from gateway.apis.fields.base import Fields
from gateway.apis.fields.sampling import MAX_INT


class TruncationFields(Fields):
    """Fields of vLLM that cut inputs."""

    truncate_prompt_tokens: int | None = Field(
        None,
        ge=-1,
        le=MAX_INT,
        description="Inputs are cut to at most so many tokens, with those that the model adds; -1: as many as the "
        "model takes.",
    )
    truncation_side: Literal["right"] = "right"
