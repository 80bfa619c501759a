"""The format of a prefix file: a header with the tokens, then the state of llama.cpp. Each part has a checksum.

CRC-32 finds every short error and all but one of 4 billion others, at 1.4 GB/s; BLAKE2b takes five times as long. It
does not protect from an attacker, who could write any file: the directory is private to its user.
"""

import struct
import zlib
from array import array
from dataclasses import dataclass
from io import BufferedReader
from typing import BinaryIO, TypeAlias

import numpy as np

from engine.core.kv.prefix import Prefix
from engine.core.kv.prefix_file import PrefixFile

State: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]

FORMAT = b"llama-gateway prefix 1\n"
"""The first bytes of a file, with the version of the format."""
FINGERPRINT = 32
"""Bytes of a fingerprint."""
_HEADER = struct.Struct(f"<{len(FORMAT)}s{FINGERPRINT}s?HIQI")  # partial, partition, tokens, bytes and CRC of the state
_CRC = struct.Struct("<I")
_MOST_TOKENS = 2**26
_AT_ONCE = 8 * 2**20
"""Bytes. Checksums and I/O of one piece find it in the processor's cache."""


class DamagedError(Exception):
    """A file is no prefix file of this model, or it is damaged."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file."""

    file: PrefixFile
    """The prefix, with the exact size of its state."""
    crc: int
    """The checksum of the state."""


def write(target: BinaryIO, fingerprint: bytes, file: PrefixFile, state: State) -> None:
    """Write a file.

    Raises:
        OSError: the disk is full, or fails.
    """
    partition = str(file.prefix.partition).encode()
    tokens = array("i", file.prefix.tokens)
    fixed = (FORMAT, fingerprint, file.partial, len(partition), len(tokens), len(state), zlib.crc32(state.data))
    header = _HEADER.pack(*fixed) + partition + tokens.tobytes()
    target.write(header + _CRC.pack(zlib.crc32(header)))
    target.writelines(state.data[start : start + _AT_ONCE] for start in range(0, len(state), _AT_ONCE))


def read_header(source: BufferedReader, fingerprint: bytes, name: str) -> Header:
    """Read the header of a file, and no more.

    Raises:
        DamagedError: the header is not that of a file of this model.
        OSError: the disk fails.
    """
    fixed = _read(source, _HEADER.size)
    found, model, partial, partition_size, count, size, crc = _HEADER.unpack(fixed)
    if found != FORMAT or model != fingerprint:
        raise DamagedError("it is of another version or model")
    if count > _MOST_TOKENS:
        raise DamagedError("its header is damaged")
    rest = _read(source, partition_size + array("i").itemsize * count)
    if _CRC.unpack(_read(source, _CRC.size))[0] != zlib.crc32(fixed + rest):
        raise DamagedError("its header is damaged")
    tokens = array("i", rest[partition_size:]).tolist()
    prefix = Prefix(tokens, count, rest[:partition_size].decode())
    return Header(PrefixFile(name, prefix, size, partial), crc)


def read_state(source: BufferedReader, header: Header) -> State:
    """Read the state behind a header.

    Raises:
        DamagedError: it is incomplete or damaged, or more follows.
        OSError: the disk fails.
    """
    state: State = np.empty(header.file.bytes, np.uint8)
    view, crc = state.data, 0
    for start in range(0, len(view), _AT_ONCE):
        piece = view[start : start + _AT_ONCE]
        if source.readinto(piece) != len(piece):
            raise DamagedError("it is incomplete")
        crc = zlib.crc32(piece, crc)
    if crc != header.crc or source.read(1):
        raise DamagedError("its checksum is wrong")
    return state


def _read(source: BufferedReader, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise DamagedError("it is incomplete")
    return data
