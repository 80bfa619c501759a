"""Starlette routes for the endpoints of the APIs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from starlette.requests import Request
from starlette.routing import Route, compile_path
from starlette.types import ASGIApp

from gateway.apis.endpoint import AnyEndpoint, Api, Call, has_body
from gateway.middleware.caller import caller_of
from gateway.middleware.conventions import Conventions
from gateway.middleware.resumable import HEADER, ResumableStreams
from gateway.middleware.sse import EventStream
from gateway.preparation.preparer import Preparer


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
        if not has_body(endpoint):
            return await endpoint.handler(Call(http, caller, None))
        body = caller.body.take()
        prepared = await preparer.read(caller, endpoint, body or b"{}" if endpoint.optional_body else body)
        name = http.headers.get(HEADER)
        if streams is None or not streams.enabled or not name or endpoint.events is None:
            return await endpoint.handler(Call(http, caller, prepared))
        keeper = streams.caller_of(caller, name)
        response = await endpoint.handler(Call(http, keeper, prepared))
        return streams.keep(keeper, name, response, http.scope) if isinstance(response, EventStream) else response

    return serve


def conventions_for(apis: Sequence[Api]) -> Callable[[str], Conventions]:
    """Return a function that maps a path to the conventions of its API.

    Unknown paths have those of a path above them, or of the first API.
    """
    known = {endpoint.path: api.conventions for api in apis for endpoint in api.endpoints}
    patterns = [(compile_path(path)[0], conventions) for path, conventions in known.items() if "{" in path]

    def conventions(path: str) -> Conventions:
        if exact := known.get(path):
            return exact
        matching = (found for pattern, found in patterns if pattern.match(path))
        above = (found for parent, found in known.items() if path.startswith(f"{parent}/"))
        return next(chain(matching, above), apis[0].conventions)

    return conventions
