"""Reading of bodies in workers: the function of a job."""

import importlib
from collections.abc import Callable
from functools import cache, reduce
from typing import Any

from pydantic import BaseModel

from gateway.preparation.codec import decode, encode
from gateway.preparation.stages import prepare


def read(names: bytes, body: bytes) -> bytes:
    """Return the encoded `Prepared` of a body.

    Args:
        names: encoded names of `Endpoint.body` and `Endpoint.prepare`, as `module:name`.
        body: the body's bytes.
    """
    model, convert = _stage(names)
    return encode(prepare(model, convert, body))


@cache
def _stage(names: bytes) -> tuple[type[BaseModel], Callable[[Any], object]]:
    model, convert = (_find(name) for name in decode(names, tuple[str, str]))
    return model, convert


def _find(name: str) -> Any:  # noqa: ANN401 (a type or a function)
    module, _, path = name.partition(":")
    return reduce(getattr, path.split("."), importlib.import_module(module))
