"""Fields of `/infill` requests, as editors send them."""

from dataclasses import dataclass

from pydantic import Field

from gateway.apis.fields.base import Fields
from gateway.apis.llama_server.completion.call import NativeCompletionCall, native_call
from gateway.apis.llama_server.completion.request import MAX_MILLISECONDS, NativeCompletionBody

MAX_CHUNKS = 2**10


class ExtraChunk(Fields):
    """A part of another file of the project."""

    text: str
    filename: str = "tmp"


class InfillBody(NativeCompletionBody):
    """The body of an `/infill` request: a text around a gap, and the fields of `/completion`."""

    input_prefix: str
    input_suffix: str
    prompt: str = Field("", description="Text after `input_prefix`, which is never cut.")  # type: ignore[assignment]
    input_extra: list[ExtraChunk] = Field(
        [],
        max_length=MAX_CHUNKS,
        description="Parts of other files. The first ones are left out where the slot has no room for all.",
    )
    t_max_prompt_ms: int = Field(
        0, ge=-1, le=MAX_MILLISECONDS, description="Without effect, as in llama-server: no prompt is cut by time."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InfillCall:
    """An `/infill` request."""

    prefix: str
    """Text before the gap."""
    suffix: str
    """Text after the gap."""
    prompt: str
    """Text directly before the gap."""
    extra: tuple[tuple[str, str], ...]
    """Name and text of each part of another file."""
    completion: NativeCompletionCall
    """The request without its prompt."""


def prepare_infill(body: InfillBody) -> InfillCall:
    """Return the request in a body. Raises `RequestError` if its fields contradict each other."""
    return InfillCall(
        prefix=body.input_prefix,
        suffix=body.input_suffix,
        prompt=body.prompt,
        extra=tuple((chunk.filename, chunk.text) for chunk in body.input_extra),
        completion=native_call(body, ()),
    )
