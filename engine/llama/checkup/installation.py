"""The machine and the installed llama.cpp."""

import ctypes
import os
import platform
import re
from collections.abc import Mapping

import llama_cpp

from engine.checkup import BuildReport, DeviceReport, InstallationReport, MachineReport
from engine.llama.cpu.properties import cpu_info, gains_by_repacking, usable_cores
from engine.llama.devices import Device, additional_memory, all_devices, available_memory
from engine.llama.ggml_functions import declare, libggml
from engine.processors import cpu_quota, usable_processors

declare("ggml_version", ctypes.c_char_p)
declare("ggml_commit", ctypes.c_char_p)


def examine_installation() -> InstallationReport:
    """Return the report. llama.cpp starts its backends for it."""
    llama_cpp.llama_backend_init()
    return InstallationReport(machine=_machine(cpu_info()), build=_build())


def _machine(cpu: Mapping[str, str]) -> MachineReport:
    return MachineReport(
        cpu=cpu.get("model name") or platform.processor() or platform.machine(),
        features=frozenset((cpu.get("flags") or cpu.get("Features") or "").split()),
        processors=os.cpu_count() or 1,
        cores=usable_cores(),
        usable_processors=usable_processors(),
        quota=cpu_quota(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        available=available_memory(),
    )


def _build() -> BuildReport:
    devices = all_devices()
    return BuildReport(
        bindings=llama_cpp.__version__,
        version=llama_cpp.llama_version().decode(),
        ggml=f"{libggml.ggml_version().decode()} ({libggml.ggml_commit().decode()})",
        features=frozenset(re.findall(r"(\w+) = 1\b", llama_cpp.llama_print_system_info().decode())),
        offloads=bool(llama_cpp.llama_supports_gpu_offload()),
        devices=tuple(_report(device) for device in devices if device.offloads),
        gpu_free=additional_memory(devices),
        repacks=gains_by_repacking(),
    )


def _report(device: Device) -> DeviceReport:
    return DeviceReport(name=device.name, description=device.description, free=device.free, memory=device.memory)
