"""Fake directory of prefixes: in memory, and as slow as a test wants."""

import sys
from collections.abc import Iterator

from engine.core.kv.prefix_file import FileGone, FileRead, FileReport, FileWritten, PrefixFile
from engine.request import AdapterSet


class FakeFiles:
    """Holds the tokens of each file. What becomes of a change is reported when the test takes the reports."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        """Tokens of the cells in each file."""
        self.computed_by: dict[str, AdapterSet] = {}
        """The adapters that computed the cells in each file."""
        self.known: dict[str, PrefixFile] = {}
        """The files by their names."""
        self.fails = False
        """True to fail every write and read."""
        self.room = sys.maxsize
        """Maximum number of cells. The files that were written first are removed for others."""
        self.reports: list[FileReport] = []
        """The reports that wait."""
        self.written = 0
        """Number of cells written."""

    def write(self, file: PrefixFile, cells: list[int] | None, adapters: AdapterSet) -> None:
        """Write the cells of a file, which were computed with these adapters; None could not be saved."""
        if cells is None or self.fails:
            self.reports.append(FileGone(file.name))
            return
        if cells != file.prefix.tokens:
            raise RuntimeError(f"{len(cells)} cells are not those of the {file.size} tokens of {file.name}")
        self.written += len(cells)
        self.tokens[file.name], self.known[file.name] = cells.copy(), file
        self.computed_by[file.name] = adapters
        self.reports.append(FileWritten(file, tuple(self._remove_surplus())))

    def read(self, file: PrefixFile, key: int) -> None:
        """Read a file."""
        found = file.name in self.tokens and not self.fails
        self.reports.append(FileRead(key, found, file.bytes, 0.001))
        if not found:
            self.reports.append(FileGone(file.name))

    def delete(self, name: str) -> None:
        """Delete a file, if there is one. It is not reported."""
        self.tokens.pop(name, None)
        self.computed_by.pop(name, None)
        self.known.pop(name, None)

    def _remove_surplus(self) -> Iterator[str]:
        """Remove files until the others have room. Yield their names."""
        while sum(map(len, self.tokens.values())) > self.room:
            name = next(iter(self.tokens))
            self.delete(name)
            yield name

    def take_reports(self) -> list[FileReport]:
        """Return the reports that wait."""
        reports, self.reports = self.reports, []
        return reports
