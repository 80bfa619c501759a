"""The abort of a running step, which few devices support, and the memory of mapped files."""

import mmap
from pathlib import Path

import pytest
from typing_extensions import override

from engine.llama.attention import FLASH
from engine.llama.devices import Device, all_devices, mapped_memory
from engine.llama.ggml_functions import libggml
from engine.llama.hardware.placement import Placement
from engine.llama.memory.parameters import BATCH_ROWS, largest_step


class Abortable(Device):
    """A device that can abort a step."""

    @property
    @override
    def aborts(self) -> bool:
        return True


class Unstoppable(Device):
    """A device that cannot."""

    @property
    @override
    def aborts(self) -> bool:
        return False


def test_the_cpu_can_abort_a_step() -> None:
    assert [device.aborts for device in all_devices() if device.name == "CPU"] == [True]


@pytest.mark.parametrize(
    ("devices", "aborts"),
    [((), True), ((Abortable(1),), True), ((Unstoppable(1),), False), ((Abortable(1), Unstoppable(2)), False)],
)
def test_a_step_can_be_aborted_if_all_devices_can(devices: tuple[Device, ...], aborts: bool) -> None:
    assert Placement(-1, (), (), devices).aborts is aborts


@pytest.mark.parametrize(
    ("aborts", "slots", "tokens"), [(True, 4, BATCH_ROWS), (False, 4, FLASH.batch), (False, 600, 600)]
)
def test_a_prompt_step_is_one_physical_batch_where_it_cannot_be_aborted(aborts: bool, slots: int, tokens: int) -> None:
    assert largest_step(FLASH, slots, aborts=aborts) == tokens


def test_read_pages_of_a_mapped_file_count_as_mapped_memory(tmp_path: Path) -> None:
    size = 2**25
    file = tmp_path / "file"
    file.write_bytes(bytes(size))
    before = mapped_memory()
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        mapped.find(b"x")  # reads all
        assert mapped_memory() >= before + size // 2


def test_a_device_that_reports_no_memory_has_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = 1
    report = libggml.ggml_backend_dev_memory
    monkeypatch.setattr(libggml, "ggml_backend_dev_memory", lambda device, *at: device == silent or report(device, *at))
    cpu = next(device for device in all_devices() if device.name == "CPU")
    assert 0 < Device(silent).free <= Device(silent).memory == cpu.memory
