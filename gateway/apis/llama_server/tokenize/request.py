"""Fields of `/tokenize` and `/detokenize` requests."""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from gateway.apis.fields.base import Fields, given
from gateway.apis.fields.nested import check_one_given
from gateway.apis.fields.prompts import MAX_PROMPT_TOKENS
from gateway.apis.fields.sampling import MAX_INT

MAX_TEXT = 2**20
"""Characters. This is far above the context of a slot; more would block the server for a second."""


class TokenizeBody(Fields):
    """The body of `POST /tokenize`. `prompt` and `add_special_tokens` are vLLM's names."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [given("content"), given("prompt")]})

    model: str | None = None
    content: str = Field("", max_length=MAX_TEXT)
    prompt: str = Field("", max_length=MAX_TEXT)
    add_special: bool = False
    add_special_tokens: bool | None = Field(
        None, description="The same as `add_special`. `null`: true for a `prompt` without `add_special`, as in vLLM."
    )
    parse_special: bool = True
    with_pieces: bool = False

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        check_one_given(self, "content", "prompt")
        return self

    @property
    def text(self) -> str:
        """The text to tokenize."""
        return self.content or self.prompt

    @property
    def begins(self) -> bool:
        """True to add the tokens that begin a text."""
        like_vllm = "prompt" in self.model_fields_set and "add_special" not in self.model_fields_set
        return self.add_special or (like_vllm if self.add_special_tokens is None else self.add_special_tokens)


class DetokenizeBody(Fields):
    """The body of `POST /detokenize`."""

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0, le=MAX_INT)]] = Field(max_length=MAX_PROMPT_TOKENS, fail_fast=True)
