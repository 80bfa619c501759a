"""A cache of whether repacked weights crash, so that only the first start on a machine pays for a crash."""

import hashlib
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

logger = logging.getLogger(__name__)

_WORDS = {False: "crashes", True: "works"}
"""Word in the name of a record by its verdict. Of two records a crash counts."""
_CPU_INFO = Path("/proc/cpuinfo")
_CPU_KEYS = ("model name", "flags", "Features", "CPU part")


class RepackCache:
    """Remembers, in a folder that outlives the process, whether repacked weights crash.

    An empty file is the record, so that there is no content to be damaged. Its name has the verdict, and depends on the
    CPU and on the build of llama.cpp: another one is tried again. Where there is no folder, or it cannot be used,
    nothing is remembered. That they work does not say so of every quantisation: a crash later is one, and replaces the
    verdict.
    """

    def __init__(self) -> None:
        key = hashlib.sha256("\n".join([*_cpu(), *_build()]).encode()).hexdigest()[:16]
        folder = _folder()
        self._files = {works: folder / f"repack-{word}-{key}" for works, word in _WORDS.items()} if folder else {}

    def works(self) -> bool | None:
        """Return whether repacked weights work with this build on this CPU; None if that is not known."""
        with suppress(OSError):
            return next((works for works, file in self._files.items() if file.exists()), None)
        return None

    def crashes(self) -> bool:
        """Return whether a crash of this build on this CPU is recorded, and log it."""
        known = self.works() is False
        if known:
            logger.info("the weights are not repacked: that crashed before", extra={"record": self._files[False]})
        return known

    def record(self, *, works: bool) -> None:
        """Record that repacked weights work, or that they crash."""
        if not self._files:
            return
        with suppress(OSError):
            self._files[works].parent.mkdir(parents=True, exist_ok=True)
            self._files[works].touch()
            self._files[not works].unlink(missing_ok=True)


def _folder() -> Path | None:
    """Return the folder of the records; None for a user without a home, as in a container."""
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache, "llama-gateway")
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "llama-gateway"
    return None


def _cpu() -> Iterator[str]:
    """Yield the properties that identify this kind of CPU."""
    yield platform.machine()
    with suppress(OSError):
        first = _CPU_INFO.read_text().split("\n\n", 1)[0]
        yield from (line for line in first.splitlines() if line.startswith(_CPU_KEYS))


def _build() -> Iterator[str]:
    """Yield the properties that identify this build of llama.cpp: sizes and times of its libraries."""
    spec = find_spec("llama_cpp")
    for folder in (spec and spec.submodule_search_locations) or ():
        for file in sorted(Path(folder, "lib").glob("*ggml*")):
            status = file.stat()
            yield f"{file} {status.st_size} {status.st_mtime_ns}"
