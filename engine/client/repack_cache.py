"""A cache of crashes by repacked weights, so that only the first start on a machine pays for one."""

import hashlib
import logging
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

logger = logging.getLogger(__name__)

_CPU_INFO = Path("/proc/cpuinfo")
_CPU_KEYS = ("model name", "flags", "Features", "CPU part")


class RepackCache:
    """Remembers, in a folder that outlives the process, that repacked weights crash.

    An empty file is the record, so that there is no content to be damaged. Its name depends on the CPU and on the build
    of llama.cpp: another one is tried again. Where the folder cannot be used, nothing is remembered.
    """

    def __init__(self) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        key = hashlib.sha256("\n".join([*_cpu(), *_build()]).encode()).hexdigest()[:16]
        self._file = Path(home) / "llama-gateway" / f"repack-crashes-{key}"

    def crashes(self) -> bool:
        """Return whether a crash of this build on this CPU is recorded."""
        try:
            known = self._file.exists()
        except OSError:
            return False
        if known:
            logger.info("the weights are not repacked: that crashed before", extra={"record": self._file})
        return known

    def record(self) -> None:
        """Record that repacked weights crash."""
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.touch()


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
