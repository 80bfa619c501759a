"""Jobs of the stages of preparation, and what each may use."""

from collections.abc import Callable, Iterable
from functools import cache

from gateway.apis.endpoint import AnyEndpoint, has_body
from gateway.preparation import reading, rendering
from gateway.preparation.codec import encode
from gateway.preparation.workers.messages import Job, Limits

_MEBIBYTE = 2**20
_SECONDS = 5
_WAIT_FACTOR = 4
"""Seconds by the clock for each second of CPU time, since a worker gets only a part of a busy processor."""
_MEMORY = 128 * _MEBIBYTE
_OUTPUT = 4 * _MEBIBYTE
_MEMORY_FACTOR = 16
"""Bytes of Python's objects that a byte of text may become: 4 in each copy, if one of its characters needs as many."""
_OUTPUT_FACTOR = 4


def limits_for(size: int) -> Limits:
    """Return the limits of a job with a payload of `size` bytes."""
    seconds = _SECONDS + size / _MEBIBYTE
    return Limits(
        seconds=seconds,
        wait=_WAIT_FACTOR * seconds,
        memory=_MEMORY + _MEMORY_FACTOR * size,
        output=_OUTPUT + _OUTPUT_FACTOR * size,
    )


def read_job(endpoint: AnyEndpoint, size: int) -> Job:
    """Return the job that reads a body of `size` bytes."""
    return Job(_name(reading.read), _read_argument(endpoint), limits_for(size))


def render_job(template: bytes, size: int) -> Job:
    """Return the job that renders a conversation of `size` bytes with an encoded template."""
    return Job(_name(rendering.render), template, limits_for(size))


def compile_job(template: bytes) -> Job:
    """Return the job that compiles an encoded template."""
    return Job(_name(rendering.compile_template), template, limits_for(0))


def modules_of(endpoints: Iterable[AnyEndpoint]) -> list[str]:
    """Return the modules of all functions that jobs call. Those of templates come first, as each chat needs them."""
    parts = [part for endpoint in endpoints if has_body(endpoint) for part in (endpoint.body, endpoint.prepare)]
    return list(dict.fromkeys([rendering.__name__, reading.__name__, *(part.__module__ for part in parts)]))


@cache
def _read_argument(endpoint: AnyEndpoint) -> bytes:
    return encode((_name(endpoint.body), _name(endpoint.prepare)))


def _name(found: type | Callable[..., object]) -> str:
    return f"{found.__module__}:{found.__qualname__}"
