"""Which of llama-server's own routes the operator allows."""

from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from gateway.middleware.errors import NO_RETRY, SERVER, Problem, RefusedError

NOT_ALLOWED = frozenset({501})
"""Refusals of an endpoint that a flag allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOptions:
    """The operator's choice of routes."""

    slots: bool = True
    """True to list slots and the queue."""
    metrics: bool = True
    """True to show metrics."""
    props: bool = False
    """True to accept changes of properties."""
    build: str = ""
    """Name and version of the program."""
    save_path: Path | None = None
    """Folder of saved slots; None refuses to save and restore them."""


def refused(what: str, remedy: str) -> RefusedError:
    """Return the error of a route that another command line would allow, in llama-server's words."""
    message = f"This server does not support {what}. Start it {remedy}"
    return RefusedError(
        Problem(status=HTTPStatus.NOT_IMPLEMENTED, message=message, type=SERVER, code="not_allowed", headers=NO_RETRY)
    )
