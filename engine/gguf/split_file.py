"""Models in several files, such as `model-00001-of-00003.gguf`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_PATTERN = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>(?!00000)\d{5})\.gguf", re.ASCII | re.IGNORECASE)
_SUFFIX = len(".gguf")


@dataclass(frozen=True, slots=True)
class SplitFile:
    """Name of one part of a model."""

    stem: str
    """Beginning of the names of all parts."""
    part: int
    """Number of this part, from 1."""
    parts: int
    """Number of all parts."""

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the pieces of a name, or None for that of an ordinary file."""
        match = _PATTERN.fullmatch(name)
        return match and cls(match["stem"], int(match["part"]), int(match["parts"]))


def parts_of(name: str) -> list[str]:
    """Return the names of all parts of a model, in order, by that of one part or of an ordinary file."""
    split = SplitFile.parse(name)
    if split is None:
        return [name]
    suffix = name[-_SUFFIX:]  # as it is written
    return [f"{split.stem}-{part:05}-of-{split.parts:05}{suffix}" for part in range(1, split.parts + 1)]


def bytes_of(path: Path) -> int:
    """Return the size of a model: of its file, or of all files of a split one."""
    parts = map(path.with_name, parts_of(path.name))
    return sum(part.stat().st_size for part in parts if part.exists())
