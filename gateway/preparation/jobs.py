"""The stages of preparation as jobs of workers, and what each job may use."""

import importlib
from collections.abc import Callable, Iterable
from functools import cache, reduce
from typing import Any

from pydantic import BaseModel

from gateway.apis.endpoint import AnyEndpoint, has_body
from gateway.chat import rendering
from gateway.chat.rendering import TemplateKey
from gateway.preparation.codec import decode, encode
from gateway.preparation.stages import prepare
from gateway.preparation.workers.messages import Job, Limits

_MEBIBYTE = 2**20
_SECONDS = 5
_MEMORY = 128 * _MEBIBYTE
_OUTPUT = 4 * _MEBIBYTE
_MEMORY_FACTOR = 32
"""Bytes of Python's objects that a byte of JSON may become: 24 for empty objects, 19 for empty arrays."""
_OUTPUT_FACTOR = 4


def limits_for(size: int) -> Limits:
    """Return the limits of a job with a payload of `size` bytes."""
    return Limits(
        seconds=_SECONDS + size / _MEBIBYTE,
        memory=_MEMORY + _MEMORY_FACTOR * size,
        output=_OUTPUT + _OUTPUT_FACTOR * size,
    )


def read_job(endpoint: AnyEndpoint, size: int) -> Job:
    """Return the job that reads a body of `size` bytes."""
    return Job(_name(read), _read_argument(endpoint), limits_for(size))


def render_job(template: bytes, size: int) -> Job:
    """Return the job that renders a conversation of `size` bytes with an encoded template."""
    return Job(_name(render), template, limits_for(size))


def compile_job(template: bytes) -> Job:
    """Return the job that compiles an encoded template."""
    return Job(_name(compile_template), template, limits_for(0))


def modules_of(endpoints: Iterable[AnyEndpoint]) -> list[str]:
    """Return the modules of all functions that jobs call."""
    parts = [part for endpoint in endpoints if has_body(endpoint) for part in (endpoint.body, endpoint.prepare)]
    return list(dict.fromkeys([__name__, *(part.__module__ for part in parts)]))


def read(argument: bytes, payload: bytes) -> bytes:
    """Return an encoded `Prepared` of a body."""
    body, convert = _stage(argument)
    return encode(prepare(body, convert, payload))


def render(argument: bytes, payload: bytes) -> bytes:
    """Return an encoded `ChatPrompt` of an encoded conversation."""
    return encode(rendering.render(_template(argument), payload))


def compile_template(argument: bytes, _payload: bytes) -> bytes:
    """Compile a template, which this process then keeps."""
    rendering.compiled(_template(argument))
    return b""


@cache
def _template(argument: bytes) -> TemplateKey:
    key: TemplateKey = decode(argument, TemplateKey)
    return key


@cache
def _read_argument(endpoint: AnyEndpoint) -> bytes:
    return encode((_name(endpoint.body), _name(endpoint.prepare)))


@cache
def _stage(argument: bytes) -> tuple[type[BaseModel], Callable[[Any], object]]:
    body, convert = (_find(name) for name in decode(argument, tuple[str, str]))
    return body, convert


def _name(found: type | Callable[..., object]) -> str:
    return f"{found.__module__}:{found.__qualname__}"


def _find(name: str) -> Any:  # noqa: ANN401 (a type or a function)
    module, _, path = name.partition(":")
    return reduce(getattr, path.split("."), importlib.import_module(module))
