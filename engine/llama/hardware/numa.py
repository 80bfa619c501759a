"""llama.cpp's strategies for machines of several NUMA nodes."""

from pathlib import Path

import llama_cpp

from engine.errors import LoadError
from engine.hardware import Numa

_STRATEGIES: dict[Numa, int] = {"distribute": 1, "isolate": 2, "numactl": 3}
"""llama.cpp's numbers: `enum ggml_numa_strategy`, ggml-cpu.h."""
_NODES = Path("/sys/devices/system/node")


def use_numa(strategy: Numa) -> None:
    """Set the strategy for the whole process. Only the first call has an effect.

    Raises:
        LoadError: the machine has a single node, where llama.cpp ignores strategies.
    """
    if len(list(_NODES.glob("node[0-9]*"))) < 2:  # noqa: PLR2004
        raise LoadError(f"--numa {strategy} has no effect: this machine has a single NUMA node")
    llama_cpp.llama_numa_init(_STRATEGIES[strategy])
