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


def machine_budget(host: int | None, gpu: int | None) -> Memory:
    """Return the bytes that models may take: those given, otherwise a share of the machine's. May take a second."""
    if host is None:
        available = available_host_memory()
        host = int((_host_memory() if available is None else available) * HOST_SHARE)
    return Memory(host, int(_gpu_free() * GPU_SHARE) if gpu is None else gpu)


def _host_memory() -> int:
    """Return the bytes of host memory, for a system that does not tell what is available."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")


def _gpu_free() -> int:
    """Return the free bytes of NVIDIA's GPUs that engines see; 0 without their tool.

    The CUDA library would take memory itself.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    command = [tool, "--query-gpu=index,uuid,memory.free", "--format=csv,noheader,nounits"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS)  # noqa: S603
        gpus = [line.split(", ") for line in run.stdout.splitlines()]
        return sum(int(free) * 2**20 for index, uuid, free in gpus if _is_visible(index, uuid))
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0


def _is_visible(index: str, uuid: str) -> bool:
    """Return whether CUDA uses a GPU. If GPUs differ, CUDA may count them in another order than the tool."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return True
    names = [name.strip() for name in chosen.split(",")]
    return index in names or any(name.startswith("GPU-") and uuid.startswith(name) for name in names)
