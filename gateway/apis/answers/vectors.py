"""Sizes and encodings of embedding vectors, which the engine sends as little-endian float32."""

import base64
import math
import struct

from engine import RequestError

MAX_SCALED = 32760
"""Largest number of a vector that is scaled to 16-bit integers."""
_FLOAT_BYTES = 4


def check_dimensions(dimensions: int | None, size: int) -> None:
    """Check the size that a request asks for. Raises `RequestError` if the model's vectors are smaller."""
    if dimensions is not None and dimensions > size:
        message = f"dimensions: this model's embeddings have {size}"
        raise RequestError(message, code="invalid_value", param="dimensions")


def shorten(vector: bytes, dimensions: int) -> bytes:
    """Return the first numbers of a float32 vector, normalized to length 1 again.

    This is the method for models with Matryoshka representation learning. If the first numbers are all zero, the result
    is zero.
    """
    numbers = to_floats(vector[: dimensions * _FLOAT_BYTES])
    length = math.hypot(*numbers) or 1.0
    return struct.pack(f"<{len(numbers)}f", *(number / length for number in numbers))


def rescale(vector: bytes, norm: int) -> bytes:
    """Return a vector scaled to the length 1 by the p-norm of that p. With 0, its largest number becomes 32760.

    These are the normalizations of llama.cpp. A zero vector stays zero.
    """
    numbers = to_floats(vector)
    largest = max(map(abs, numbers), default=0.0) or 1.0
    scaled = [number / largest for number in numbers]
    factor = 1 / MAX_SCALED if norm == 0 else math.pow(math.fsum(abs(one) ** norm for one in scaled), 1 / norm) or 1.0
    return struct.pack(f"<{len(scaled)}f", *(number / factor for number in scaled))


def to_floats(vector: bytes) -> list[float]:
    """Return the numbers of a vector."""
    return list(struct.unpack(f"<{len(vector) // _FLOAT_BYTES}f", vector))


def to_base64(vector: bytes) -> str:
    """Return the bytes of a vector in base64."""
    return base64.b64encode(vector).decode()
