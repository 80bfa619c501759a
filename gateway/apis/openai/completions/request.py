"""Fields of OpenAI's completion requests."""

from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from engine import GenerationRequest, Infill
from engine import Prompt as EnginePrompt
from gateway.apis.fields.constraints import GrammarFields
from gateway.apis.fields.prompts import (
    MAX_CHOICES,
    ParseSpecial,
    Prompt,
    PromptForms,
    bounded_choices,
    engine_prompt,
    read_prompts,
)
from gateway.apis.fields.refusing import RefusingFields
from gateway.apis.fields.sampling import MAX_INT, MAX_LOGPROBS, SamplingFields
from gateway.apis.openai import vllm_fields
from gateway.apis.openai.reports import ReportingFields


class CompletionBody(SamplingFields, GrammarFields, ReportingFields, RefusingFields):
    """The body of a completion request."""

    unsupported = vllm_fields.UNSUPPORTED
    empty = vllm_fields.EMPTY

    model: str | None = None
    prompt: Annotated[tuple[Prompt, ...], BeforeValidator(read_prompts, json_schema_input_type=PromptForms)]
    n: int = Field(
        1,
        ge=1,
        le=MAX_CHOICES,
        description=f"Choices per prompt. Times the number of prompts, at most {MAX_CHOICES}.",
    )
    best_of: int | None = Field(
        None, ge=1, le=MAX_CHOICES, description="At least `n`; exactly `n` if `stream` is true."
    )
    max_tokens: int = Field(16, ge=0, le=MAX_INT)
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    suffix: str = Field("", description="Requires a model with infill tokens, text prompts, and no `echo`.")
    parse_special: ParseSpecial = True
    user: str | None = None

    _within_limit = field_validator("n")(bounded_choices)

    @field_validator("best_of")
    @classmethod
    def _at_least_n(cls, best_of: int, info: ValidationInfo) -> int:
        n = info.data.get("n", best_of)
        if best_of < n:
            raise ValueError("should be at least n")
        if best_of > n and info.data.get("stream"):
            raise ValueError("should be n where stream is true: the best are known only at the end")
        return bounded_choices(best_of, info)

    @field_validator("suffix")
    @classmethod
    def _between_texts(cls, suffix: str, info: ValidationInfo) -> str:
        if suffix and info.data.get("echo"):
            raise ValueError("cannot be combined with echo")
        if suffix and not all(isinstance(prompt, str) for prompt in info.data.get("prompt", ())):
            raise ValueError("needs prompts that are texts")
        return suffix

    @property
    def choices(self) -> int:
        """Number of choices to generate per prompt. The best `n` of them are returned."""
        return self.best_of or self.n

    def request(self) -> GenerationRequest:
        """Return the engine's request, without an id. Raises `RequestError`."""
        return self.reporting(self.generation(tuple(map(self._engine_prompt, self.prompt)))).replaced(
            n=self.choices,
            max_tokens=self.max_tokens,
            grammar=self.constraint(),
            echo=self.echo,
            logprobs=0 if self.logprobs is None and self.choices > self.n else self.logprobs,
        )

    def _engine_prompt(self, prompt: Prompt) -> EnginePrompt:
        if self.suffix and isinstance(prompt, str):
            return Infill(prompt, self.suffix)
        return engine_prompt(prompt, parse_special=self.parse_special)
