"""Weights in huge pages.

A decode step reads all weights once. In small pages the processor looks up a page for every 4 KiB, in a virtual machine
in two tables. Few kernels map files in larger pages, so the weights are copied into memory that malloc allocates, where
the kernel has huge pages for it.
"""

import os
import platform
from pathlib import Path

from engine.config import EngineConfig
from engine.environment import HUGE_PAGES
from engine.gguf.split_file import bytes_of
from engine.llama.hardware.placement import Placement

_MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_GLIBC = 2, 35
"""The first version that knows the tunable."""


def malloc_has_huge_pages() -> bool:
    """Return whether large allocations of this process are in huge pages: always, or because malloc asks for them."""
    try:
        mode = _MODE.read_text()
    except OSError:
        return False
    return "[always]" in mode or ("[madvise]" in mode and _malloc_asks())


def _malloc_asks() -> bool:
    asked = all(value in os.environ.get(name, "") for name, value in HUGE_PAGES.items())
    library, version = platform.libc_ver()
    return asked and library == "glibc" and tuple(map(int, version.split("."))) >= _GLIBC


def copies_weights(config: EngineConfig, placement: Placement, available: int) -> bool:
    """Return whether the load mode `auto` copies the weights into huge pages, and does not map the file.

    The memory must have room for the copy and for the cached file, from which the next start reads. With devices and
    with several NUMA nodes, llama.cpp has its own ways.

    Args:
        config: the engine's configuration.
        placement: where the weights go.
        available: bytes that this process may use.
    """
    hardware = config.hardware
    chosen = hardware.load_mode == "auto" and hardware.numa is None and not placement.devices
    return chosen and malloc_has_huge_pages() and 2 * bytes_of(Path(config.model)) <= available
