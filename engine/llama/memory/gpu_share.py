"""GPU memory that one engine process takes, beside others that load or unload at the same time."""

from collections.abc import Mapping

from engine.llama.memory.buffers import HOST

DRIVER = 2**30
"""Most bytes that the driver and its kernels take on a GPU for a process besides llama.cpp's buffers."""


def gpu_share(
    difference: int, weights: Mapping[str, int], context: Mapping[str, int], *, gpus: int, offloads: bool
) -> int:
    """Return the bytes of GPU memory that this process takes.

    Only the difference of the free memory has the driver's part, and only llama.cpp's own figures have no bytes of
    other processes. So these bound it.

    Args:
        difference: bytes by which the load of this process made the free memory of the GPUs less. Negative if others
            returned more.
        weights: bytes of the weights by device. llama.cpp may name those that GPUs share like those of the host.
        context: bytes of the context by device.
        gpus: number of GPUs of this machine.
        offloads: whether weights are on GPUs.
    """
    least = _on_gpus(weights) + _on_gpus(context)
    most = sum(weights.values()) + sum(context.values()) if offloads else least
    return min(max(difference, least), most + gpus * DRIVER)


def _on_gpus(bytes_of: Mapping[str, int]) -> int:
    return sum(size for device, size in bytes_of.items() if device != HOST)
