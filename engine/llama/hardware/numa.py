"""llama.cpp's strategies for machines of several NUMA nodes."""

import llama_cpp

from engine.hardware import Numa

_STRATEGIES: dict[Numa, int] = {"distribute": 1, "isolate": 2, "numactl": 3}
"""llama.cpp's numbers: `enum ggml_numa_strategy`, ggml-cpu.h."""


def use_numa(strategy: Numa) -> None:
    """Set the strategy for the whole process. Only the first call has an effect."""
    llama_cpp.llama_numa_init(_STRATEGIES[strategy])
