"""Names of samplers in the formats of llama-server."""

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from engine import SamplerName
from gateway.like.spellings import SAMPLER_LETTERS, sampler_named

MAX_NAMES = 2**6

SamplerForms: TypeAlias = str | Annotated[list[str], Field(max_length=MAX_NAMES)]


def read_samplers(value: object) -> list[SamplerName]:
    """Return the names in an array, or in a text of one letter for each. Unknown ones are left out, as in llama-server.

    Raises:
        ValueError: for another type, or for more names than there are samplers. pydantic reports it.
    """
    find = SAMPLER_LETTERS.get if isinstance(value, str) else sampler_named
    if not isinstance(value, str | list) or len(value) > MAX_NAMES or not all(isinstance(name, str) for name in value):
        raise ValueError(f"should be a string, or an array of at most {MAX_NAMES} strings")
    return list(dict.fromkeys(sampler for name in value if (sampler := find(name)) is not None))


SamplersField: TypeAlias = Annotated[
    list[SamplerName] | None, BeforeValidator(read_samplers, json_schema_input_type=SamplerForms)
]
"""The field `samplers`."""
