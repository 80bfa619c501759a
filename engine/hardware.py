"""The hardware that an engine uses, and how the weights are placed on it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

SplitMode: TypeAlias = Literal["none", "layer", "row", "tensor"]
LoadMode: TypeAlias = Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "direct-io"]
Numa: TypeAlias = Literal["distribute", "isolate", "numactl"]
Priority: TypeAlias = Literal["low", "normal", "medium", "high", "realtime"]
RopeType: TypeAlias = Literal["none", "linear", "yarn"]

ALL_LAYERS = -1
"""A number of layers that stands for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Devices, placement of the weights, and the engine process's share of the CPUs."""

    devices: tuple[str, ...] | None = None
    """Devices to offload to, by llama.cpp's names; empty offloads nothing, None takes all GPUs."""
    split_mode: SplitMode = "layer"
    """Division of the model among several GPUs."""
    tensor_split: tuple[float, ...] = ()
    """Share of each device, in proportion to the others; empty takes the devices' free memory."""
    main_gpu: int = 0
    """Position of the GPU that has the whole model with split mode `none`, among `devices`."""
    override_tensor: tuple[tuple[str, str], ...] = ()
    """Patterns of tensor names, and the buffer type of each one's tensors. The first match decides."""
    cpu_moe: int = 0
    """First layers whose experts stay in host memory; `ALL_LAYERS` for all."""
    fit: bool = True
    """True if fewer layers are offloaded where GPU memory does not hold all of them."""
    load_mode: LoadMode = "auto"
    """Way of reading the file."""
    numa: Numa | None = None
    """llama.cpp's strategy for machines of several NUMA nodes."""
    cpus: tuple[int, ...] = ()
    """CPUs that the engine process may use; empty for all that it inherits."""
    priority: Priority = "normal"
    """Priority of the engine process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Scaling of the rotary position embedding. None takes the model's own value."""

    type: RopeType | None = None
    """Method."""
    freq_base: float | None = None
    """Base frequency."""
    freq_scale: float | None = None
    """Factor of the frequencies: 0.25 makes the context four times as long."""
    yarn_orig_ctx: int | None = None
    """Tokens that the model was trained on before it was extended."""
    yarn_ext_factor: float | None = None
    """Share of extrapolation: 0 only interpolates."""
    yarn_attn_factor: float | None = None
    """Factor of the attention."""
    yarn_beta_fast: float | None = None
    """Rotations above which a dimension is not interpolated."""
    yarn_beta_slow: float | None = None
    """Rotations below which a dimension is wholly interpolated."""
