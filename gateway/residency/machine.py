"""Memory of this machine that models may take by default."""

import os
import shutil
import subprocess

from engine.host_memory import available_host_memory
from gateway.residency.memory import Memory

HOST_SHARE = 0.8
"""Part of the available host memory. The rest is for the gateway, for other programs and for errors of the estimate."""
GPU_SHARE = 0.9
"""Part of the free memory of GPUs."""
_SECONDS = 10
_OF_THE_HOST = "[N/A]"
"""Free memory of a GPU that has none of its own, in the words of `nvidia-smi`."""


def machine_budget(host: int | None, gpu: int | None) -> Memory:
    """Return the bytes that models may take: those given, otherwise a share of the machine's. May take a second."""
    share = int(_host_memory() * HOST_SHARE)
    return Memory(share if host is None else host, _gpu_share(share) if gpu is None else gpu)


def _host_memory() -> int:
    """Return the bytes of host memory that are available, or all on a system that does not tell which are."""
    available = available_host_memory()
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") if available is None else available


def _gpu_share(host: int) -> int:
    """Return the part of the memory of NVIDIA's GPUs that engines see; 0 without their tool.

    One that uses the host's memory, as on DGX Spark and Jetson, adds that of the host.

    The CUDA library would take memory itself.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    command = [tool, "--query-gpu=index,uuid,memory.free", "--format=csv,noheader,nounits"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS)  # noqa: S603
        gpus = [line.split(", ") for line in run.stdout.splitlines()]
        free = [text for index, uuid, text in gpus if _is_visible(index, uuid)]
        return sum(host if text == _OF_THE_HOST else int(int(text) * 2**20 * GPU_SHARE) for text in free)
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0


def _is_visible(index: str, uuid: str) -> bool:
    """Return whether CUDA uses a GPU. If GPUs differ, CUDA may count them in another order than the tool."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return True
    names = [name.strip() for name in chosen.split(",")]
    return index in names or any(name.startswith("GPU-") and uuid.startswith(name) for name in names)
