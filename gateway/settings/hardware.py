"""Settings of the hardware: devices, placement of the weights, CPUs, and scaling of the positions."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from engine.hardware import ALL_LAYERS, Hardware, LoadMode, Numa, Priority, RopeScaling, RopeType, SplitMode
from gateway.settings.hardware_values import (
    cpu_list,
    device_list,
    override_list,
    pattern_and_buffer,
    share_list,
    some_share,
)

_YARN = ("yarn_orig_ctx", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow")
_MOST_LAYERS = 1000


class HardwareSettings(BaseModel):
    """Settings of the hardware, of each model."""

    device: Annotated[tuple[str, ...] | None, BeforeValidator(device_list)] = Field(
        None,
        title="NAMES",
        description="devices to offload to, separated by commas, or none; default: all GPUs",
    )
    split_mode: SplitMode = Field(
        "layer",
        description="how GPUs share the model: none uses one GPU, layer gives each whole layers, row and tensor divide "
        "the tensors",
    )
    tensor_split: Annotated[tuple[float, ...], AfterValidator(some_share), BeforeValidator(share_list)] = Field(
        (),
        title="SHARES",
        description="share of each GPU, such as 3,1; default: in proportion to their free memory",
    )
    main_gpu: int = Field(0, ge=0, le=255, title="N", description="position of the GPU that --split-mode none uses")
    override_tensor: Annotated[tuple[str, ...], BeforeValidator(override_list)] = Field(
        (),
        title="PATTERN=BUFFER",
        description="buffer type, such as CPU, of the tensors whose names match a regular expression; repeatable, or "
        "separated by commas; the first match decides; default: by layers",
    )
    cpu_moe: bool = Field(False, description="keep the experts of all layers in host memory")
    n_cpu_moe: int = Field(
        0, ge=0, le=_MOST_LAYERS, title="N", description="keep the experts of the first N layers in host memory"
    )
    fit: Literal["on", "off"] = Field(
        "on",
        description="where GPU memory does not hold the model, keep experts in host memory, then whole layers; without "
        "effect if another flag places the weights",
    )
    load_mode: LoadMode = Field(
        "auto",
        description="how the file is read: mmap maps it, none copies it, mlock keeps it from being swapped, direct-io "
        "bypasses the page cache; auto copies it into huge pages on Linux if it takes a third of the available memory "
        "at most, and otherwise maps it, unless a device cannot",
    )
    numa: Numa | None = Field(
        None,
        title="STRATEGY",
        description="distribute, isolate or numactl: llama.cpp's strategies for a machine of several NUMA nodes; "
        "default: none",
    )
    cpus: Annotated[tuple[int, ...], BeforeValidator(cpu_list)] = Field(
        (), title="LIST", description="CPUs of the engine process, such as 0-3,8; default: all it may use"
    )
    engine_priority: Priority = Field(
        "normal", description="the kernel's priority of the engine process; more than normal needs a privilege"
    )
    rope_scaling: RopeType | None = Field(
        None,
        title="METHOD",
        description="none, linear or yarn: how the context is extended beyond the model's training; default: the "
        "model's",
    )
    rope_freq_base: float | None = Field(
        None, gt=0, title="BASE", description="base frequency of the positions; default: the model's"
    )
    rope_freq_scale: float | None = Field(
        None,
        gt=0,
        title="FACTOR",
        description="factor of the frequencies: 0.25 makes the context four times as long; default: the model's",
    )
    yarn_orig_ctx: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        title="TOKENS",
        description="YaRN: context before the extension; default: the model's training context",
    )
    yarn_ext_factor: float | None = Field(
        None, ge=0, le=1, title="FACTOR", description="YaRN: share of extrapolation; default: 1"
    )
    yarn_attn_factor: float | None = Field(
        None,
        gt=0,
        title="FACTOR",
        description="factor of the attention, with --yarn-ext-factor 0 only; default: the model's",
    )
    yarn_beta_fast: float | None = Field(
        None, ge=0, title="N", description="YaRN: rotations above which nothing is interpolated; default: the model's"
    )
    yarn_beta_slow: float | None = Field(
        None, ge=0, title="N", description="YaRN: rotations below which all is interpolated; default: the model's"
    )

    def check_hardware(self) -> None:
        """Refuse flags that llama.cpp would ignore beside the others.

        Raises:
            ValueError: it would ignore one.
        """
        if self.tensor_split and self.split_mode == "none":
            raise ValueError("--tensor-split has no effect with --split-mode none")
        if self.main_gpu and self.split_mode != "none":
            raise ValueError("--main-gpu needs --split-mode none")
        if self.cpu_moe and self.n_cpu_moe:
            raise ValueError("--n-cpu-moe has no effect with --cpu-moe")
        if self.cpus and self.numa in ("distribute", "isolate"):
            raise ValueError(f"--numa {self.numa} would override --cpus: choose --numa numactl")
        if self.rope_freq_scale is not None and self.rope_scaling == "none":
            raise ValueError("--rope-freq-scale has no effect with --rope-scaling none")
        for name in _YARN:
            if getattr(self, name) is not None and self.rope_scaling != "yarn":
                raise ValueError(f"--{name.replace('_', '-')} needs --rope-scaling yarn")
        if self.yarn_attn_factor is not None and self.yarn_ext_factor != 0:
            raise ValueError("--yarn-attn-factor needs --yarn-ext-factor 0: otherwise llama.cpp computes it")

    @property
    def hardware(self) -> Hardware:
        """The hardware, as an engine is configured with it."""
        return Hardware(
            devices=self.device,
            split_mode=self.split_mode,
            tensor_split=self.tensor_split,
            main_gpu=self.main_gpu,
            override_tensor=tuple(map(pattern_and_buffer, self.override_tensor)),
            cpu_moe=ALL_LAYERS if self.cpu_moe else self.n_cpu_moe,
            fit=self.fit == "on",
            load_mode=self.load_mode,
            numa=self.numa,
            cpus=self.cpus,
            priority=self.engine_priority,
        )

    @property
    def rope(self) -> RopeScaling:
        """The scaling of the positions, as an engine is configured with it."""
        return RopeScaling(
            type=self.rope_scaling,
            freq_base=self.rope_freq_base,
            freq_scale=self.rope_freq_scale,
            yarn_orig_ctx=self.yarn_orig_ctx,
            yarn_ext_factor=self.yarn_ext_factor,
            yarn_attn_factor=self.yarn_attn_factor,
            yarn_beta_fast=self.yarn_beta_fast,
            yarn_beta_slow=self.yarn_beta_slow,
        )
