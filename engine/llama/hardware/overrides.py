"""Tensors that are placed by their names, whatever the layer's place."""

import logging
import re
from collections.abc import Collection, Iterable

from engine.errors import LoadError
from engine.hardware import ALL_LAYERS, Hardware

logger = logging.getLogger(__name__)

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""Pattern of the experts' tensors, llama.cpp's own (common.h)."""
HOST = "CPU"
"""Name of the buffer type in host memory."""

Override = tuple[str, str]
"""A pattern of tensor names, and the buffer type of these tensors."""


def overrides_of(hardware: Hardware) -> tuple[Override, ...]:
    """Return the overrides that the operator asks for, in the order in which they are tried."""
    if hardware.cpu_moe == ALL_LAYERS:
        return (*hardware.override_tensor, (EXPERTS, HOST))
    return (*hardware.override_tensor, *experts_on_host(hardware.cpu_moe))


def experts_on_host(layers: int) -> tuple[Override, ...]:
    """Return the overrides that keep the experts of the first layers in host memory."""
    return tuple((rf"blk\.{at}{EXPERTS}", HOST) for at in range(layers))


def check_buffers(overrides: Iterable[Override], known: Collection[str]) -> None:
    """Check that this machine has the buffer types.

    Raises:
        LoadError: it does not have one of them.
    """
    for pattern, buffer in overrides:
        if buffer not in known:
            raise LoadError(
                f"--override-tensor {pattern}={buffer}: there is no buffer type {buffer}, only {', '.join(known)}"
            )


def warn_of_unused(patterns: Iterable[Override], tensors: Collection[str]) -> None:
    """Log a warning for each pattern that matches no tensor."""
    for pattern, _ in patterns:
        if not any(re.search(pattern, name) for name in tensors):
            logger.warning("--override-tensor: the pattern matches no tensor of the model", extra={"pattern": pattern})


def buffer_for(tensor: str, overrides: Iterable[Override]) -> str | None:
    """Return the buffer type that the first matching override names, or None."""
    return next((buffer for pattern, buffer in overrides if re.search(pattern, tensor)), None)
