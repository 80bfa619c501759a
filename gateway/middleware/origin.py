"""Access control for web pages, by origin. A client that is not a browser sends no `Origin` and is not checked.

A page is refused unless the operator allowed its origin, because a visit to a page must not use the visitor's machine.
This includes its POST of a plain text form, which browsers send without a preflight request.

A page that this server delivered itself has the same origin: its `Origin` names the request's own `Host`. But a page
can also point its own host name at 127.0.0.1 after it is loaded (DNS rebinding), and its requests look the same.
Therefore the same origin is accepted only if the host is an IP address or `localhost`, which a page cannot point
elsewhere. A page under any other name of this server must be allowed by its origin. A GET of such a page carries no
`Origin` and looks the same as one of curl: the page can read the responses of `GET` routes, but cannot use the model.
"""

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import ALL_METHODS, CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.middleware.errors import Problem, RefusedError

ANY = "*"
LOCAL = "localhost"
"""Stands for the pages of this machine."""
_LOCAL_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?")
_LIMITS = [(unit, part) for unit in ("requests", "tokens") for part in ("limit", "remaining", "reset")]
EXPOSED_HEADERS = (
    "x-request-id",
    "request-id",
    "x-llama-gateway-ignored",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    *(f"x-ratelimit-{part}-{unit}" for unit, part in _LIMITS),
    *(f"anthropic-ratelimit-{unit}-{part}" for unit, part in _LIMITS),
    "traceresponse",
)


_PREFLIGHT = {
    "access-control-allow-credentials": "true",
    "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
    "access-control-allow-headers": "*",
}
"""llama-server's headers for allowed pages."""


class OriginGuard:
    """Middleware that refuses requests of foreign web pages (403) and answers the preflight requests of allowed ones.

    It belongs inside `RequestScope`, which sends the refusal and drains the body.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str] = ()) -> None:
        """Wrap an application.

        Args:
            app: Serves the requests that are not refused.
            allowed: Origins (`https://example.org`), or `*` for all. Browsers send them in lower case.
        """
        self._app = app
        self._allowed = _Allowed(allowed)
        self._answer_preflight = self._allowed.cors(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            RefusedError: The request comes from a foreign page.
        """
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if origin is None:
            await self._app(scope, receive, send)
        elif origin in self._allowed:
            preflight = is_preflight(scope["method"], headers)
            if preflight:
                check_preflight(headers)
            await (self._answer_preflight if preflight else self._app)(scope, receive, send)
        elif is_same_origin(origin, headers.get("host", "")):
            await self._app(scope, receive, send)
        else:
            message = f"Web pages from {origin} may not use this server; its operator can allow them by --allow-origin."
            raise RefusedError(Problem(status=403, message=message, code="origin_not_allowed"))


class OpenPreflight:
    """Middleware that answers preflight requests with llama-server's headers, and those of other pages without any.

    It belongs around `OriginGuard`, which refuses the requests of other pages.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str] = ()) -> None:
        """Wrap an application. The arguments are those of `OriginGuard`."""
        self._app = app
        self._allowed = _Allowed(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = Headers(scope=scope)
        if not is_preflight(scope["method"], headers):
            await self._app(scope, receive, send)
            return
        origin = headers["origin"]
        given = {"access-control-allow-origin": origin, **_PREFLIGHT} if origin in self._allowed else {}
        await Response(headers={**given, "vary": "Origin"})(scope, receive, send)


class ReadableResponses:
    """Middleware that lets allowed web pages read every response, also the refusal of a middleware further inside.

    It belongs outside `RequestScope`.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str] = ()) -> None:
        """Wrap an application. The arguments are those of `OriginGuard`."""
        self._app = app
        self._allowed = _Allowed(allowed)
        self._with_headers = self._allowed.cors(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = Headers(scope=scope)
        readable = headers.get("origin") in self._allowed and not is_preflight(scope["method"], headers)
        await (self._with_headers if readable else self._app)(scope, receive, send)


class _Allowed:
    """Origins whose pages may use the server."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def __contains__(self, origin: str | None) -> bool:
        if origin is None:
            return False
        local = LOCAL in self._origins and _LOCAL_ORIGIN.fullmatch(origin) is not None
        return local or not self._origins.isdisjoint({ANY, origin})

    def cors(self, app: ASGIApp) -> CORSMiddleware:
        """Return the middleware that answers preflight requests, and adds the headers to other responses."""
        return CORSMiddleware(
            app,
            allow_origins=sorted(self._origins),
            allow_origin_regex=_LOCAL_ORIGIN.pattern if LOCAL in self._origins else None,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
            allow_private_network=True,
        )


def is_preflight(method: str, headers: Headers) -> bool:
    """Return True for a CORS preflight request, which browsers send without credentials."""
    return method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def check_preflight(headers: Headers) -> None:
    """Check the method of a preflight request, because `CORSMiddleware` refuses it in plain text.

    Raises:
        RefusedError: The method is not allowed.
    """
    if (method := headers.get("access-control-request-method", "GET")) not in ALL_METHODS:
        message = f"Web pages may not use the method {method}."
        raise RefusedError(Problem(status=400, message=message, code="method_not_allowed"))


def is_same_origin(origin: str, host: str) -> bool:
    """Return True if `origin` names the request's own host, and a foreign page cannot use that host as its own name."""
    _, separator, authority = origin.partition("://")
    return bool(separator) and authority == host and is_own_host(host)


def is_own_host(host: str) -> bool:
    """Return True if a `Host` header is an IP address or `localhost`, with or without a port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name) is not None
    except ValueError:
        return False
