"""Routes of the endpoints of the APIs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from itertools import chain
from typing import Any

from starlette.requests import Request
from starlette.routing import Match, Route, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.apis.endpoint import AnyEndpoint, Api, Call, has_body
from gateway.middleware.caller import Caller, caller_of
from gateway.middleware.conventions import Conventions
from gateway.middleware.errors import Problem, RefusedError
from gateway.middleware.streams.resumable import HEADER, ResumableStreams
from gateway.middleware.streams.sse import EventStream
from gateway.preparation.preparer import Preparer


class Router:
    """ASGI application of the endpoints. It finds those with a path without parameters at once: most requests.

    Failures are raised, also that there is no endpoint: `RequestScope` makes their responses.
    """

    def __init__(self, apis: Iterable[Api], preparer: Preparer, streams: ResumableStreams | None = None) -> None:
        """Route to the endpoints of some APIs."""
        self.routes = routes(apis, preparer, streams)
        """One route per path."""
        self._exact: dict[tuple[str, str], Callable[[Request], Any]] = {
            (method, route.path): route.endpoint
            for route in self.routes
            for method in route.methods or ()
            if "{" not in route.path
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        serve = self._exact.get((scope["method"], scope["path"])) or self._found(scope)
        response = await serve(Request(scope, receive, send))
        await response(scope, receive, send)

    def _found(self, scope: Scope) -> Callable[[Request], Any]:
        """Return the endpoint whose path fits, and add the path's parameters to the scope."""
        allowed: Iterable[str] = ()
        for route in self.routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                scope.update(found)
                return route.endpoint
            if match is Match.PARTIAL:
                allowed = allowed or route.methods or ()
        exchange = caller_of(scope).exchange
        methods = ", ".join(sorted(allowed))
        others = f"; it has {methods}" if methods else ""
        raise RefusedError(
            Problem(
                status=HTTPStatus.METHOD_NOT_ALLOWED if methods else HTTPStatus.NOT_FOUND,
                message=f"This server has no endpoint {exchange.method} {exchange.path}{others}.",
                code="method_not_allowed" if methods else "not_found",
                headers={"allow": methods} if methods else {},
            )
        )


def routes(apis: Iterable[Api], preparer: Preparer, streams: ResumableStreams | None = None) -> list[Route]:
    """Return one route per path, so that a 405 lists all methods of the path."""
    paths: dict[str, dict[str, AnyEndpoint]] = {}
    for api in apis:
        for endpoint in api.endpoints:
            paths.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [Route(path, _serve(methods, preparer, streams), methods=list(methods)) for path, methods in paths.items()]


def _serve(
    methods: Mapping[str, AnyEndpoint], preparer: Preparer, streams: ResumableStreams | None
) -> Callable[[Request], Any]:
    async def serve(http: Request) -> ASGIApp:
        endpoint = methods["GET" if http.method == "HEAD" else http.method]
        caller = caller_of(http.scope)
        caller.exchange.route = endpoint.path
        prepared = await _prepared(preparer, http, caller, endpoint)
        name = http.headers.get(HEADER) if endpoint.streams(prepared) else None
        if streams is None or not streams.enabled or not name:
            answering = endpoint.handler(Call(http, caller, prepared))
            del prepared  # so that the handler can drop it while the engine works
            return await answering
        keeper = streams.caller_of(caller, name)
        response = await endpoint.handler(Call(http, keeper, prepared))
        return streams.keep(keeper, name, response, http.scope) if isinstance(response, EventStream) else response

    return serve


async def _prepared(preparer: Preparer, http: Request, caller: Caller, endpoint: AnyEndpoint) -> Any:  # noqa: ANN401
    """Return what an endpoint prepares of the body, or None without a body. Only the result refers to it afterwards."""
    if not has_body(endpoint):
        return None
    body = caller.body.take()
    raw = body or b"{}" if endpoint.optional_body else body
    return await preparer.read(caller, endpoint, http.headers, raw)


def conventions_for(apis: Sequence[Api]) -> Callable[[Scope], Conventions]:
    """Return a function that returns the conventions of the API that a request belongs to.

    Mostly its path decides. Unknown paths are those of a path above them, which `/` is not, or of the first API. A path
    that clients of several APIs use, and one that no API has, belongs to the API whose header the client sends.
    """
    known = {endpoint.path: (api.conventions, endpoint.shared) for api in apis for endpoint in api.endpoints}
    patterns = [(compile_path(path)[0], found) for path, found in known.items() if "{" in path]
    clients = [(api.client_header, api.conventions) for api in apis if api.client_header]

    def at(path: str) -> tuple[Conventions, bool]:
        if exact := known.get(path):
            return exact
        matching = (found for pattern, found in patterns if pattern.match(path))
        above = (found for parent, found in known.items() if parent != "/" and path.startswith(f"{parent}/"))
        return next(chain(matching, above), (apis[0].conventions, True))

    def conventions(scope: Scope) -> Conventions:
        own, shared = at(scope["path"])
        if not shared:
            return own
        names = {name for name, _ in scope["headers"]}
        return next((theirs for header, theirs in clients if header in names), own)

    return conventions
