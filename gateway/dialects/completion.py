"""The fields of OpenAI's completion requests."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from engine import GenerationRequest
from gateway.dialects.prompts import MAX_CHOICES, Prompt, read_prompts
from gateway.dialects.sampling import MAX_INT, SamplingFields


class StreamOptions(BaseModel):
    """What a stream carries besides text."""

    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None


class CompletionBody(SamplingFields):
    """The body of a request. What OpenAI has and we have not is refused only where it would change the answer."""

    model: str | None = None
    prompt: Annotated[tuple[Prompt, ...], BeforeValidator(read_prompts)]
    n: int = Field(1, ge=1, le=MAX_CHOICES, validate_default=True)
    max_tokens: int = Field(16, ge=0, le=MAX_INT)
    stream: bool = False
    stream_options: StreamOptions | None = None
    best_of: int | None = None
    echo: bool = False
    logprobs: int | None = None
    suffix: str = ""
    user: str | None = None

    @field_validator("n")
    @classmethod
    def _bounded(cls, n: int, info: ValidationInfo) -> int:
        if len(info.data.get("prompt", ())) * n > MAX_CHOICES:
            raise ValueError(f"times the number of prompts should be at most {MAX_CHOICES}")
        return n

    @field_validator("stream_options")
    @classmethod
    def _streamed(cls, options: StreamOptions, info: ValidationInfo) -> StreamOptions:
        if not info.data.get("stream"):
            raise ValueError("is allowed only where stream is true")
        return options

    @field_validator("best_of")
    @classmethod
    def _all_returned(cls, best_of: int, info: ValidationInfo) -> int:
        if best_of != info.data.get("n"):
            raise ValueError("other than n is not supported")
        return best_of

    @field_validator("echo", "logprobs", "suffix")
    @classmethod
    def _not_asked(cls, value: object) -> object:
        if value is not False and value != "":
            raise ValueError("is not supported")
        return value

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def request(self, request_id: str) -> GenerationRequest:
        """What the engine is asked, under this id."""
        return GenerationRequest(
            id=request_id,
            prompts=self.prompt,
            n=self.n,
            max_tokens=self.max_tokens,
            stop=self.stop,
            sampling=self.sampling(),
            stream=self.stream,
            cache_prompt=self.cache_prompt,
        )
