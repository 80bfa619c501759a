"""Endpoints `/v1/stream` and `/v1/streams/lookup`: streams that were kept for their clients."""

from http import HTTPStatus

from pydantic import Field

from engine import RequestError
from gateway.apis.answers.reply import JsonReply, TextReply
from gateway.apis.answers.shapes import Count, JsonObject, Timestamp
from gateway.apis.endpoint import NOT_FOUND, AnyEndpoint, BodilessEndpoint, Call, Described, Endpoint
from gateway.apis.fields.base import Fields
from gateway.apis.fields.whole_numbers import whole_number
from gateway.middleware.errors import Problem, RefusedError
from gateway.middleware.streams.resumable import ResumableStreams
from gateway.middleware.streams.sse import EventStream

MAX_NAMES = 1024
_NAME: Described = {"name": "conv_id", "in": "query", "required": True, "schema": {"type": "string", "minLength": 1}}
_FROM: Described = {"name": "from", "in": "query", "schema": {"type": "integer", "minimum": 0, "default": 0}}


class KeptStreamState(JsonObject):
    """State of a stream that is kept. `completed_at` is 0 while it runs."""

    conversation_id: str
    is_done: bool
    total_bytes: Count
    started_at: Timestamp
    completed_at: Count


class LookupBody(Fields):
    """The body of a lookup. A name also finds `name::…`."""

    conversation_ids: list[str] = Field([], max_length=MAX_NAMES)


def prepare_lookup(body: LookupBody) -> tuple[str, ...]:
    """Return the names in a body."""
    return tuple(filter(None, body.conversation_ids))


class StreamsEndpoints:
    """Handlers for streams, each of which belongs to the credentials that began it."""

    def __init__(self, streams: ResumableStreams) -> None:
        self._streams = streams

    async def read(self, call: Call[None]) -> EventStream:
        """Return the bytes of a stream from a position on, and those that follow until its end."""
        stream = self._streams.find(call.caller.credentials, _name(call))
        if stream is None:
            message, status = "Stream not found or expired", HTTPStatus.NOT_FOUND
            raise RefusedError(Problem(status=status, message=message, code="stream_not_found", param="conv_id"))
        start = whole_number(call.http.query_params.get("from") or "0")
        if start is None:
            raise RequestError("Invalid 'from' offset", code="invalid_value", param="from")
        stream.check(start)
        return stream.reader(call.caller, start)

    async def end(self, call: Call[None]) -> TextReply:
        """End a stream, and forget its bytes. There may be none."""
        self._streams.drop(call.caller.credentials, _name(call))
        return TextReply(status_code=HTTPStatus.NO_CONTENT)

    async def look_up(self, call: Call[tuple[str, ...]]) -> JsonReply[list[KeptStreamState]]:
        """Return the states of the streams with these names, so that no client learns the names of others."""
        owner = call.caller.credentials
        found = [stream for name in call.prepared for stream in self._streams.named(owner, name)]
        return JsonReply(
            [
                {
                    "conversation_id": stream.name,
                    "is_done": bool(stream.ended_at),
                    "total_bytes": stream.size,
                    "started_at": stream.started_at,
                    "completed_at": stream.ended_at,
                }
                for stream in found
            ]
        )


def _name(call: Call[None]) -> str:
    if name := call.http.query_params.get("conv_id"):
        return name
    raise RequestError("Missing conversation id", code="missing_required_parameter", param="conv_id")


def streams_endpoints(streams: ResumableStreams) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of streams that are kept."""
    endpoints = StreamsEndpoints(streams)
    read: BodilessEndpoint[str] = BodilessEndpoint(
        method="GET",
        path="/v1/stream",
        id="readStream",
        summary="Read a stream again that was begun with the header `X-Conversation-Id`.",
        handler=endpoints.read,
        answer=str,
        media=("text/event-stream", "application/x-ndjson"),
        query=(_NAME, _FROM),
        refusals=NOT_FOUND,
    )
    end: BodilessEndpoint[str] = BodilessEndpoint(
        method="DELETE",
        path="/v1/stream",
        id="endStream",
        summary="End a stream, and forget its bytes.",
        handler=endpoints.end,
        answer=str,
        status=HTTPStatus.NO_CONTENT,
        query=(_NAME,),
    )
    look_up = Endpoint(
        method="POST",
        path="/v1/streams/lookup",
        id="lookUpStreams",
        summary="Find streams by their names.",
        body=LookupBody,
        prepare=prepare_lookup,
        handler=endpoints.look_up,
        answer=list[KeptStreamState],
    )
    return read, end, look_up
