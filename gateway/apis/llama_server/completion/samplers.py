"""Names of samplers in the formats of llama-server."""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from engine import SamplerName
from gateway.like.spellings import SAMPLER_LETTERS

_SYNONYMS: dict[str, SamplerName] = {
    "top-k": "top_k",
    "top-p": "top_p",
    "nucleus": "top_p",
    "typical-p": "typ_p",
    "typical_p": "typ_p",
    "typical": "typ_p",
    "typ-p": "typ_p",
    "typ": "typ_p",
    "min-p": "min_p",
    "top-n-sigma": "top_n_sigma",
    "temp": "temperature",
}
_NAMES: dict[str, SamplerName] = {name: name for name in get_args(SamplerName)} | _SYNONYMS
MAX_NAMES = 2**6

SamplerForms: TypeAlias = str | Annotated[list[str], Field(max_length=MAX_NAMES)]


def read_samplers(value: object) -> list[SamplerName]:
    """Return the names in an array, or in a text of one letter for each. Unknown ones are left out, as in llama-server.

    Raises:
        ValueError: for another type, or for more names than there are samplers. pydantic reports it.
    """
    names = SAMPLER_LETTERS if isinstance(value, str) else _NAMES
    if not isinstance(value, str | list) or len(value) > MAX_NAMES or not all(isinstance(name, str) for name in value):
        raise ValueError(f"should be a string, or an array of at most {MAX_NAMES} strings")
    return list(dict.fromkeys(names[name] for name in value if name in names))
