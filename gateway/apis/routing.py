"""Starlette routes for the endpoints of the APIs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import Route, compile_path
from starlette.types import ASGIApp

from gateway.apis.endpoint import AnyEndpoint, Api, Call, has_body
from gateway.middleware.caller import caller_of
from gateway.middleware.errors import EncodeError
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


def encoder_for(apis: Sequence[Api]) -> Callable[[str], EncodeError]:
    """Return a function that maps a path to the error encoder of its API. Unknown paths have that of the first API."""
    encoders = {endpoint.path: api.encode_error for api in apis for endpoint in api.endpoints}
    patterns = [(compile_path(path)[0], encode) for path, encode in encoders.items() if "{" in path]

    def encoder(path: str) -> EncodeError:
        if exact := encoders.get(path):
            return exact
        return next((encode for pattern, encode in patterns if pattern.match(path)), apis[0].encode_error)

    return encoder
