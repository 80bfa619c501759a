"""Conventions of an API for all its responses, also for failures before routing."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gateway.middleware.errors import EncodeError, Problem, encode_error

Header: TypeAlias = tuple[bytes, bytes]
"""Name and value of a header."""


def unchanged(problem: Problem) -> Problem:
    """Return the problem, for APIs with the statuses of the table in `errors`."""
    return problem


def no_headers(_headers: Sequence[Header]) -> Iterable[Header]:
    """Return no headers, for APIs with OpenAI's names."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """Shape of an API's errors, and names of its headers. The defaults are OpenAI's."""

    encode_error: EncodeError = encode_error
    """Encoder of errors."""
    adapt: Callable[[Problem], Problem] = unchanged
    """Returns a problem with the API's own status."""
    headers: Callable[[Sequence[Header]], Iterable[Header]] = no_headers
    """Returns the headers to add to a response with these headers."""


OPENAI = Conventions()
"""Conventions while the API is still unknown."""
