"""Codec of the frames: a length of four bytes in big-endian order, then a message in MessagePack.

Both processes run the same installation, so an invalid frame is a defect and raises an error.
"""

import msgspec

from engine.protocol.messages import Message

_HEADER = 4
MAX_FRAME = 256 * 1024 * 1024
"""Maximum size of a message in bytes. A larger size means that the reader lost the frame boundary."""


class FrameTooLongError(ValueError):
    """A message has more than `MAX_FRAME` bytes."""


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """Return the frame of a message.

    Raises:
        FrameTooLongError: The message is too long.
        ValueError: It has a value that a frame cannot carry: a lone surrogate, or an integer of more than 64 bits.
    """
    try:
        packed = _encoder.encode(message)
    except OverflowError as error:
        raise ValueError("an integer exceeds the 64-bit range") from error
    except TypeError as error:
        raise ValueError(str(error)) from error
    if len(packed) > MAX_FRAME:
        raise FrameTooLongError(f"a frame of {len(packed)} bytes")
    return len(packed).to_bytes(_HEADER) + packed


class Decoder:
    """Incremental decoder of the bytes of a pipe."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are complete with `data`.

        Raises:
            ValueError: The bytes are not a frame. The decoder cannot be used afterwards.
        """
        self._buffer += data
        messages = []
        start = 0
        while len(self._buffer) - start >= _HEADER:
            size = int.from_bytes(self._buffer[start : start + _HEADER])
            if size > MAX_FRAME:
                raise ValueError(f"a frame of {size} bytes")
            end = start + _HEADER + size
            if len(self._buffer) < end:
                break
            messages.append(_read(memoryview(self._buffer)[start + _HEADER : end]))
            start = end
        del self._buffer[:start]
        return messages


def _read(packed: memoryview) -> Message:
    try:
        return _decoder.decode(packed)
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(f"no message: {bytes(packed[:80])!r}") from error
