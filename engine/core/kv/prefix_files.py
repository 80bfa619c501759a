"""The prefixes on disk: which there are, which are worth writing, and which are worth reading."""

from collections import deque
from collections.abc import Iterator
from statistics import median

from engine.core.kv.prefix import Prefix
from engine.core.kv.prefix_file import PrefixFile
from engine.core.kv.prefix_index import PrefixIndex

WORTH_WRITING = 256
"""Tokens. Shorter prefixes are computed again after a restart."""
GROWTH = 8
"""A longer prefix is written once it adds this part of its size. So a conversation of any length writes each token at
most about so many times."""
WORTH_READING = 128
"""Tokens. Fewer are computed in about one prompt step."""
_RECENT = 5
_MEASURABLE = 32  # tokens


class PrefixFiles:
    """Knows the files of one model in a directory, which a thread reads and writes. Pure: it does no I/O.

    The budget of the directory is that thread's: other engines write there, too. Files that it deletes are reported.
    """

    def __init__(self, context: int, *, can_trim: bool) -> None:
        """Start without files.

        Args:
            context: tokens of a slot. Longer prefixes, of an earlier start with larger slots, are neither used nor
                written.
            can_trim: whether a prefix serves shorter ones too, so that it replaces them.
        """
        self._context = context
        self._can_trim = can_trim
        self._files: dict[str, PrefixFile] = {}
        self._writing: dict[str, PrefixFile] = {}
        self._index = PrefixIndex[PrefixFile]()
        self._checkpoints = PrefixIndex[PrefixFile]()
        self._read_rates: deque[float] = deque(maxlen=_RECENT)
        self._prompt_rates: deque[float] = deque(maxlen=_RECENT)

    def __contains__(self, name: str) -> bool:
        """Return whether there is a file, or one is being written."""
        return name in self._files or name in self._writing

    @property
    def writing(self) -> bool:
        """True while a file is being written."""
        return bool(self._writing)

    def find(self, wanted: Prefix) -> Iterator[PrefixFile]:
        """Yield the file with the longest common part, and the longest one that `wanted` begins with."""
        return self._index.find(wanted)

    def find_checkpoint(self, wanted: Prefix) -> PrefixFile | None:
        """Return the checkpoint with most tokens that `wanted` begins with."""
        return self._checkpoints.longest_within(wanted)

    def is_worth_writing(self, prefix: Prefix) -> bool:
        """Return whether a prefix has enough tokens that are in no file."""
        if prefix.size > self._context:  # put back from a saved slot
            return False
        near = [*self._index.find(prefix), *self._writing.values()]
        known = max((file.prefix.common(prefix) for file in near if not file.partial), default=0)
        return prefix.size - known >= max(WORTH_WRITING, prefix.size // GROWTH)

    def is_worth_reading(self, size: int, tokens: int) -> bool:
        """Return whether reading so many bytes takes less time than computing so many tokens, as far as measured."""
        if tokens < WORTH_READING or not (self._read_rates and self._prompt_rates):
            return tokens >= WORTH_READING
        return size / median(self._read_rates) < tokens / median(self._prompt_rates)

    def begin(self, file: PrefixFile) -> None:
        """Record that a file is being written."""
        self._writing[file.name] = file

    def add(self, file: PrefixFile) -> list[str]:
        """Add a file, if a slot can hold it. Return the names of the files that it replaces."""
        self._writing.pop(file.name, None)
        if file.name in self._files or file.size > self._context:
            return []
        old = self._index.longest_within(file.prefix) if self._can_trim and not file.partial else None
        self._files[file.name] = file
        self._index_of(file).add(file)
        return [old.name] if old else []

    def remove(self, name: str) -> None:
        """Remove a file that was deleted, or could not be written or read."""
        self._writing.pop(name, None)
        if file := self._files.pop(name, None):
            self._index_of(file).remove(file)

    def observe_read(self, size: int, seconds: float) -> None:
        """Record the duration of a read; one that failed has no size."""
        if size and seconds > 0:
            self._read_rates.append(size / seconds)

    def observe_prompt(self, tokens: int, seconds: float) -> None:
        """Record the duration of a prompt step."""
        if tokens >= _MEASURABLE and seconds > 0:
            self._prompt_rates.append(tokens / seconds)

    def _index_of(self, file: PrefixFile) -> PrefixIndex[PrefixFile]:
        return self._checkpoints if file.partial else self._index
