"""Endpoints `/api/pull` and `/api/delete`: models of the hub that join while the server runs, and leave."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal, NotRequired

import orjson
from pydantic import ConfigDict, Field

from engine import RequestError
from gateway.apis.answers.reply import JsonReply, TextReply
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.endpoint import NOT_FOUND, QUEUED, AnyEndpoint, Call, Endpoint
from gateway.apis.fields.base import Fields, given
from gateway.apis.fields.nested import refusal
from gateway.apis.ollama.errors import OllamaError
from gateway.hub.download_progress import DownloadProgress
from gateway.hub.reference import HOSTS, SCHEME, HubReference
from gateway.middleware.caller import Caller
from gateway.middleware.errors import Problem, RefusedError
from gateway.middleware.streams.sse import LINES, EventStream, NextEvents
from gateway.pulls.downloads import Watcher
from gateway.pulls.pulls import Pulls
from gateway.serving.models import DEFAULT, LATEST, Models

_PREFIXES = (SCHEME, *(f"{host}/" for host in HOSTS))
_SHA256_DIGITS = 64
_NAME = {"type": "string", "minLength": 1}
_SHORT = 12
"""Digits of a digest in a status."""


class PullStatus(JsonObject):
    """A line of a pull's stream, or the answer. `total` and `completed` are bytes of the file with the digest."""

    status: str
    digest: NotRequired[str]
    total: NotRequired[Count]
    completed: NotRequired[Count]


class NamedBody(Fields):
    """The name of a model. Older clients write `name`, and some the other one as an empty text."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [given(model=_NAME), given(name=_NAME)]})
    model: str | None = None
    name: str | None = None

    @property
    def given_name(self) -> str:
        """The name. Raises `RequestError` without one."""
        if not (name := self.model or self.name):
            raise RequestError("model: Field required", code="missing_required_parameter", param="model")
        return name


class PullBody(NamedBody):
    """The body of a request to pull a model of the hub: `hf.co/USER/REPO:QUANT`, or without the host."""

    stream: bool = True
    insecure: Literal[False] = Field(False, description="Has no effect: `HF_ENDPOINT` names the hub.")


class DeleteBody(NamedBody):
    """The body of a request to delete a model that was pulled."""


@dataclass(frozen=True, slots=True)
class PullCall:
    """A request to pull a model."""

    name: str
    """Name of the model."""
    stream: bool
    """True to report the progress."""


def prepare_pull(body: PullBody) -> PullCall:
    """Return the request in a body. Raises `RequestError` without a name."""
    return PullCall(body.given_name, body.stream)


def prepare_delete(body: DeleteBody) -> str:
    """Return the name of the model in a body. Raises `RequestError` without one."""
    return body.given_name


def _reference(name: str) -> HubReference:
    bare = name.removesuffix(LATEST)
    bare = next((bare.removeprefix(prefix) for prefix in _PREFIXES if bare.startswith(prefix)), bare)
    try:
        reference = HubReference.parse(f"{SCHEME}{bare}")
    except ValueError as error:
        example = f"{HOSTS[0]}/USER/REPO or {HOSTS[0]}/USER/REPO:QUANT"
        raise refusal("model", f"should be a model of the Hugging Face hub with GGUF files: {example}") from error
    return replace(reference, quant=reference.quant and reference.quant.upper())


class PullingEndpoints:
    """Handlers for pulls and deletions."""

    def __init__(self, models: Models, pulls: Pulls | None) -> None:
        self._models = models
        self._pulls = pulls

    async def pull(self, call: Call[PullCall]) -> JsonReply[PullStatus] | EventStream:
        """Download a model and serve it. It ends, and can be continued, if all clients that wait for it have left.

        A model that the server was started with is here already. Some clients pull each model before they use it.
        """
        if self._was_started_with(call.caller, call.prepared.name):
            stream = EventStream(_nothing_to_pull, end=b"", framing=LINES)
            return stream if call.prepared.stream else JsonReply({"status": "success"})
        pulls, reference = self._allowed(call.caller), _reference(call.prepared.name)
        call.caller.closing.lift_deadline()  # a large model takes longer than any answer

        @asynccontextmanager
        async def source() -> AsyncIterator[NextEvents]:
            async with pulls.pull(reference) as watcher:
                yield _PullLines(watcher).next

        if call.prepared.stream:
            return EventStream(source, end=b"", framing=LINES)
        async with pulls.pull(reference) as watcher:
            while await watcher.news():
                pass
        return JsonReply({"status": "success"})

    async def delete(self, call: Call[str]) -> TextReply:
        """Serve a model no more that was pulled. Its files are removed once no request uses it."""
        pulls = self._allowed(call.caller)
        model = self._models.find(call.caller, call.prepared)
        if not pulls.was_pulled(model):
            message = f"The model {model.name!r} cannot be deleted: the server was started with it."
            raise RefusedError(Problem(status=403, message=message, code="model_not_pulled", param="model"))
        await pulls.delete(model)
        return TextReply(media_type="text/plain")

    def _was_started_with(self, caller: Caller, name: str) -> bool:
        """Return True if a name is that of a model that the caller may use and that was not pulled."""
        bare = name.removesuffix(LATEST)
        served = [model for model in self._models.allowed(caller) if not model.names.isdisjoint({name, bare})]
        return bare == DEFAULT or any(self._pulls is None or not self._pulls.was_pulled(model) for model in served)

    def _allowed(self, caller: Caller) -> Pulls:
        """Return the pulls. Raises `RefusedError` if the caller may not pull and delete."""
        message = "This server does not let clients pull or delete models. Start it with `--allow-pull`"
        if self._pulls is not None:
            if caller.key is None or caller.key.unlimited:
                return self._pulls
            message = "This API key has limits, so it may not pull or delete models."
        raise RefusedError(Problem(status=403, message=message, code="pull_not_allowed"))


class _PullLines:
    """Encodes the progress of a pull as lines of JSON, in Ollama's words."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._state: Literal["beginning", "downloading", "ended"] = "beginning"

    async def next(self) -> Iterable[bytes]:
        """Wait for progress and return the lines that are ready; none at the end."""
        if self._state == "beginning":
            self._state = "downloading"
            return _statuses("pulling manifest")
        if self._state == "ended":
            return ()
        if news := await self._watcher.news():
            return [_line(_progress(at)) for at in news]
        self._state = "ended"
        return _statuses("verifying sha256 digest", "writing manifest", "success")


@asynccontextmanager
async def _nothing_to_pull() -> AsyncIterator[NextEvents]:
    """Yield the source of the lines for a model that is here already."""
    parts = iter([_statuses("pulling manifest", "success")])

    async def next_lines() -> Iterable[bytes]:
        return next(parts, ())

    yield next_lines


def _statuses(*statuses: str) -> list[bytes]:
    return [_line({"status": status}) for status in statuses]


def _line(status: PullStatus) -> bytes:
    return orjson.dumps(status, option=orjson.OPT_APPEND_NEWLINE)


def _progress(at: DownloadProgress) -> PullStatus:
    kind = "sha256" if len(at.digest) == _SHA256_DIGITS else "sha1"
    return {
        "status": f"pulling {at.digest[:_SHORT]}",
        "digest": f"{kind}:{at.digest}",
        "total": at.total,
        "completed": at.completed,
    }


def pulling_endpoints(models: Models, pulls: Pulls | None) -> tuple[AnyEndpoint, ...]:
    """Return the endpoints of pulls and deletions."""
    endpoints = PullingEndpoints(models, pulls)
    pull = Endpoint(
        method="POST",
        path="/api/pull",
        id="ollamaPull",
        summary="Download a model of the Hugging Face hub and serve it, if `--allow-pull` is set.",
        body=PullBody,
        prepare=prepare_pull,
        handler=endpoints.pull,
        answer=PullStatus,
        events=PullStatus | OllamaError,
        streams=lambda call: call.stream,
        stream_media=LINES.media,
        refusals=QUEUED,
    )
    delete: Endpoint[DeleteBody, str, str] = Endpoint(
        method="DELETE",
        path="/api/delete",
        id="ollamaDelete",
        summary="Remove a model that was pulled, if `--allow-pull` is set.",
        body=DeleteBody,
        prepare=prepare_delete,
        handler=endpoints.delete,
        answer=str,
        media=("text/plain",),
        refusals=NOT_FOUND,
    )
    return pull, delete
