"""Scaling of the rotary position embedding, which extends the context beyond the model's training."""

import llama_cpp

from engine.errors import LoadError
from engine.hardware import RopeScaling, RopeType

_TYPES: dict[RopeType, int] = {
    "none": llama_cpp.LLAMA_ROPE_SCALING_TYPE_NONE,
    "linear": llama_cpp.LLAMA_ROPE_SCALING_TYPE_LINEAR,
    "yarn": llama_cpp.LLAMA_ROPE_SCALING_TYPE_YARN,
}


def set_rope(params: llama_cpp.llama_context_params, rope: RopeScaling) -> None:
    """Set the parameters that the operator has chosen. All others are the model's."""
    if rope.type is not None:
        params.rope_scaling_type = _TYPES[rope.type]
    chosen = {
        "rope_freq_base": rope.freq_base,
        "rope_freq_scale": rope.freq_scale,
        "yarn_orig_ctx": rope.yarn_orig_ctx,
        "yarn_ext_factor": rope.yarn_ext_factor,
        "yarn_attn_factor": rope.yarn_attn_factor,
        "yarn_beta_fast": rope.yarn_beta_fast,
        "yarn_beta_slow": rope.yarn_beta_slow,
    }
    for name, value in chosen.items():
        if value is not None:
            setattr(params, name, value)


def check_scale(rope: RopeScaling, own_scale: float) -> None:
    """Check that a method of scaling has a factor to scale by.

    Args:
        rope: the operator's choice.
        own_scale: the factor in the model's file; 1 if it has none.

    Raises:
        LoadError: neither the operator nor the file has a factor.
    """
    if rope.type in ("linear", "yarn") and rope.freq_scale is None and own_scale == 1:
        raise LoadError(f"--rope-scaling {rope.type} needs --rope-freq-scale: the model has no scale of its own")


def extended_context(rope: RopeScaling, trained: int, original: int | None) -> int:
    """Return the context that the positions are scaled to.

    Args:
        rope: the operator's choice.
        trained: tokens of the model's training context, as its file extends it.
        original: tokens before the file's extension; None if there is none.
    """
    if rope.freq_scale is None:
        return trained
    return max(int((rope.yarn_orig_ctx or original or trained) / rope.freq_scale), 1)
