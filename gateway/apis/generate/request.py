"""Fields of `/generate` requests."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from engine import GenerationRequest
from gateway.apis.fields.constraints import GrammarFields
from gateway.apis.fields.prompts import ParseSpecial, Prompt, PromptForm, engine_prompt, read_prompts
from gateway.apis.fields.refusing import RefusingFields
from gateway.apis.fields.sampling import MAX_INT, MAX_LOGPROBS, ReportFields, SamplingFields


def _one_prompt(value: object) -> Prompt:
    prompts = read_prompts(value)
    if len(prompts) != 1:
        raise ValueError("should be one prompt")
    return prompts[0]


class GenerateBody(SamplingFields, GrammarFields, ReportFields, RefusingFields):
    """The body of a `/generate` request."""

    unsupported: ClassVar[Mapping[str, str]] = {
        "timings_per_token": "is not supported: timings adds them once, at the end",
    }
    empty: ClassVar[Mapping[str, Any]] = {"timings_per_token": False}

    prompt: Annotated[
        Prompt,
        BeforeValidator(
            _one_prompt,
            json_schema_input_type=PromptForm | Annotated[list[PromptForm], Field(min_length=1, max_length=1)],
        ),
    ]
    parse_special: ParseSpecial = True
    max_tokens: int = Field(16, ge=0, le=MAX_INT)
    stream: bool = False
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)

    def request(self) -> GenerationRequest:
        """Return the engine's request, without an id. Raises `RequestError`."""
        return self.generation((engine_prompt(self.prompt, parse_special=self.parse_special),)).replaced(
            max_tokens=self.max_tokens,
            stream=self.stream,
            grammar=self.constraint(),
            logprobs=self.logprobs,
            token_ids=self.return_token_ids,
        )
