"""Reports about a machine, a build of llama.cpp and a model, from processes that only examine them."""

from dataclasses import dataclass, field

from engine.info import ModelInfo

REFUSED = 3
"""Exit code of such a process if the model cannot be loaded. The reason is on its standard output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReport:
    """The machine, as far as llama.cpp uses it."""

    cpu: str
    """Name of the CPU."""
    features: frozenset[str]
    """Instruction sets that the kernel reports, by its names."""
    processors: int
    """Number of processors, as the kernel counts them."""
    cores: int
    """Cores that this process may use: by its affinity, its quota, and without a second thread on a core."""
    usable_processors: int
    """Processors that this process may use at once: by its affinity and its quota."""
    quota: float | None
    """Quota of the control groups, in cores; unset without one."""
    memory: int
    """Bytes of memory."""
    available: int
    """Bytes that a process may still use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """A device that llama.cpp can offload to."""

    name: str
    """Name in llama.cpp, such as `CUDA0`."""
    description: str
    """Name of the hardware."""
    free: int
    """Free bytes."""
    memory: int
    """Bytes in total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """The installed llama.cpp."""

    bindings: str
    """Version of llama-cpp-python."""
    version: str
    """Version of llama.cpp."""
    ggml: str
    """Version and commit of ggml."""
    features: frozenset[str]
    """Properties of the build, such as `AVX512`, by llama.cpp's names."""
    offloads: bool
    """True if it can use a GPU."""
    devices: tuple[DeviceReport, ...]
    """GPUs that it sees."""
    gpu_free: int = 0
    """Free bytes of those that it offloads to by default, without the host's memory, which integrated ones use."""
    repacks: bool
    """True if it repacks weights for this CPU by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationReport:
    """The machine and the installed llama.cpp."""

    machine: MachineReport
    """The machine."""
    build: BuildReport
    """The installed llama.cpp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingReport:
    """Plan for serving a model."""

    model: ModelInfo
    """The model, with the slots and the context that were chosen."""
    token_bytes: int
    """Bytes of the KV cells of one token."""
    cache_bytes: int
    """Bytes of the KV cells of all slots."""
    prefix_store: int
    """Largest number of bytes for saved prefixes."""
    aborts: bool = True
    """True if a running step can be aborted."""
    largest_step: int = 0
    """Maximum number of tokens of a prompt step."""
    backend_sampling: bool | None = False
    """True if the device of the output layer selects the best tokens; unset if that is measured at the start."""
    contexts: dict[int, int] = field(default_factory=dict)
    """Tokens of a slot with other numbers of slots; 0 if that is impossible."""
