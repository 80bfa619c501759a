"""Sizes and encodings of embedding vectors, which the engine sends as little-endian float32."""

import base64
import math
import struct
from dataclasses import dataclass
from typing import Literal

from engine import RequestError

MAX_SCALED = 32760
"""Largest number of a vector that is scaled to 16-bit integers."""
EUCLIDEAN = 2
"""The p of the norm in which the engine's vectors have the length 1."""
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorShape:
    """Size, length and encoding of the vectors in an answer."""

    dimensions: int | None = None
    """Size of the vectors; None for that of the model."""
    norm: int = EUCLIDEAN
    """The p of the norm by which they have the length 1; 0 scales them to 16-bit integers."""
    encoding: Literal["float", "base64"] = "float"
    """Encoding of the vectors."""

    def check(self, size: int) -> None:
        """Check the size for a model whose vectors have this one. Raises `RequestError` if these are smaller."""
        if self.dimensions is not None and self.dimensions > size:
            message = f"dimensions: this model's embeddings have {size}"
            raise RequestError(message, code="invalid_value", param="dimensions")

    def encode(self, vector: bytes) -> list[float] | str:
        """Return a vector of the engine in this shape."""
        return base64.b64encode(self._shaped(vector)).decode() if self.encoding == "base64" else self.floats(vector)

    def floats(self, vector: bytes) -> list[float]:
        """Return the numbers of a vector of the engine in this shape, whatever the encoding is."""
        return to_floats(self._shaped(vector))

    def _shaped(self, vector: bytes) -> bytes:
        cut = vector if self.dimensions is None else shorten(vector, self.dimensions)
        return cut if self.norm == EUCLIDEAN else rescale(cut, self.norm)


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
