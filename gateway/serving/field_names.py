"""Names of fields in errors: the client's, in place of the engine's."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from engine import RequestError


@contextmanager
def naming(names: Mapping[str, str | None]) -> Iterator[None]:
    """Let an error of the engine name a field as the client does; None names no field.

    Args:
        names: map the engine's names of fields to the client's. Other names stay.
    """
    try:
        yield
    except RequestError as error:
        param = names.get(error.param or "", error.param)
        raise RequestError(error.message, code=error.code, param=param, figures=error.figures) from error


def naming_text(field: str | None) -> AbstractContextManager[None]:
    """Let an error about the text or the tokens of a query of the engine name one field of the client."""
    return naming({"content": field, "tokens": field})
