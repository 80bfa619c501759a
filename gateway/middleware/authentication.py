"""Authentication of requests by API keys."""

from collections.abc import Callable, Iterable

from starlette.datastructures import Headers
from starlette.types import Scope

from gateway.keys.key import Key
from gateway.middleware.body import declared_length
from gateway.middleware.errors import CLOSE, Problem, RefusedError
from gateway.middleware.exchange import PROBES
from gateway.middleware.origin import is_preflight

Authenticate = Callable[[Scope], Key | None]
"""Returns the API key of a request, or None for a request that needs none. Raises `RefusedError` (401)."""

MISSING = "This server needs an API key. Send it in the header 'Authorization: Bearer KEY'."
INVALID = "The API key is not valid: it is unknown, revoked or expired."


def no_authentication(_scope: Scope) -> None:
    """Return None for every request, on a server without keys."""


class Authenticator:
    """Finds the API key of each request. It runs before the body is read, so that strangers cannot upload."""

    def __init__(self, find: Callable[[str], Key | None], open_paths: Iterable[str] = ()) -> None:
        """Create an authenticator.

        Args:
            find: Returns the key with a secret.
            open_paths: Paths, besides `PROBES`, that need no key, also with a body. A valid key is used there, too.
        """
        self._find = find
        self._open_paths = frozenset(open_paths)

    def __call__(self, scope: Scope) -> Key | None:
        """Return the key of a request, or None if it needs none.

        Raises:
            RefusedError: It has no key, or one that is not valid.
        """
        headers = Headers(scope=scope)
        secret = secret_in(headers)
        key = self._find(secret) if secret else None
        if key is None and not self._is_open(scope["method"], scope["path"], headers):
            raise refusal(INVALID if secret else MISSING, headers)
        return key

    def _is_open(self, method: str, path: str, headers: Headers) -> bool:
        if path in self._open_paths:
            return True
        return (path in PROBES or is_preflight(method, headers)) and not has_body(headers)


def secret_in(headers: Headers) -> str:
    """Return the API key in the headers, empty without one: OpenAI's bearer token, else Anthropic's `x-api-key`."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return headers.get("x-api-key", "").strip()


def has_body(headers: Headers) -> bool:
    """Return True if a request has a body."""
    return "transfer-encoding" in headers or declared_length(headers.raw) > 0


def refusal(message: str, headers: Headers) -> RefusedError:
    """Return a 401. It closes the connection of a request with a body, which stays unread."""
    own = {"www-authenticate": "Bearer", **(CLOSE if has_body(headers) else {})}
    return RefusedError(Problem(status=401, message=message, code="invalid_api_key", headers=own))
