"""Endpoints of Ollama that this server refuses: its models are GGUF files, which are not built, copied or published."""

from http import HTTPStatus
from typing import NoReturn

from gateway.apis.endpoint import AnyEndpoint, BodilessEndpoint, Call
from gateway.apis.ollama.pulling import PullStatus
from gateway.middleware.errors import NO_RETRY, SERVER, Problem, RefusedError

_INSTEAD = "Settings of a model are those of the server: see --chat-template, --alias and the tables of --config."
_REFUSED = (
    ("POST", "/api/create", "ollamaCreate", f"create models. {_INSTEAD}"),
    ("POST", "/api/copy", "ollamaCopy", f"copy models. {_INSTEAD}"),
    ("POST", "/api/push", "ollamaPush", "publish models."),
    ("GET", "/api/blobs/{digest}", "ollamaFindBlob", f"store files for models to create. {_INSTEAD}"),
    ("POST", "/api/blobs/{digest}", "ollamaStoreBlob", f"store files for models to create. {_INSTEAD}"),
)


def refused_endpoints() -> tuple[AnyEndpoint, ...]:
    """Return the endpoints, all of which answer with 501."""
    return tuple(_refused(*row) for row in _REFUSED)


def _refused(method: str, path: str, id_: str, what: str) -> AnyEndpoint:
    message = f"This server does not {what}"

    async def handler(_call: Call[None]) -> NoReturn:
        raise RefusedError(
            Problem(
                status=HTTPStatus.NOT_IMPLEMENTED, message=message, type=SERVER, code="not_supported", headers=NO_RETRY
            )
        )

    endpoint: BodilessEndpoint[PullStatus] = BodilessEndpoint(
        method=method,
        path=path,
        id=id_,
        summary="Refused with 501: models are neither created, copied nor published.",
        handler=handler,
        answer=PullStatus,
        refusals=frozenset({HTTPStatus.NOT_IMPLEMENTED}),
    )
    return endpoint
