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
from engine.gguf.cells import cell_bytes
from engine.gguf.header import read_header
from engine.gguf.split_file import bytes_of
from engine.llama.hardware.placement import Placement
from engine.llama.memory.parameters import all_cells

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
    asked = all(value in os.environ.get(name, "").split(":") for name, value in HUGE_PAGES.items())
    library, version = platform.libc_ver()
    return asked and library == "glibc" and tuple(map(int, version.split("."))) >= _GLIBC


def copies_weights(config: EngineConfig, placement: Placement, available: int) -> bool:
    """Return whether the load mode `auto` copies the weights into huge pages, and does not map the file.

    Where memory is short, the kernel drops pages of a mapped file, but kills the process that has copied it. So the
    memory must have room for all that is known now, the weights, the context and the prefix store, and that twice,
    because another engine may start at the same time; and for the cached file, from which the next start reads. With
    devices and with several NUMA nodes, llama.cpp has its own ways.

    Args:
        config: the engine's configuration.
        placement: where the weights go.
        available: bytes that this process may use.
    """
    hardware = config.hardware
    chosen = hardware.load_mode == "auto" and hardware.numa is None and not placement.devices
    if not (chosen and malloc_has_huge_pages()):
        return False
    weights = bytes_of(Path(config.model))
    return 2 * (weights + _chosen_bytes(config)) + weights <= available


def _chosen_bytes(config: EngineConfig) -> int:
    """Return the bytes of a context and a prefix store that are chosen. Defaults take a part of what is left."""
    store, tokens = config.prefix_store or 0, config.context or config.earlier_context or 0
    try:
        each = cell_bytes(read_header(Path(config.model)), config.kv_type_k, config.kv_type_v)
    except (OSError, ValueError):  # llama.cpp reports a damaged file
        return store
    return store + all_cells(config.slots, tokens) * each.token + config.slots * each.sequence
