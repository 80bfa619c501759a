"""Sizes and encodings of embedding vectors, which the engine sends as little-endian float32."""

import base64
import math
import struct

_FLOAT_BYTES = 4


def shorten(vector: bytes, dimensions: int) -> bytes:
    """Return the first numbers of a float32 vector, normalized to length 1 again.

    This is the method for models with Matryoshka representation learning. If the first numbers are all zero, the result
    is zero.
    """
    numbers = to_floats(vector[: dimensions * _FLOAT_BYTES])
    length = math.hypot(*numbers) or 1.0
    return struct.pack(f"<{len(numbers)}f", *(number / length for number in numbers))


def to_floats(vector: bytes) -> list[float]:
    """Return the numbers of a vector."""
    return list(struct.unpack(f"<{len(vector) // _FLOAT_BYTES}f", vector))


def to_base64(vector: bytes) -> str:
    """Return the bytes of a vector in base64."""
    return base64.b64encode(vector).decode()
