"""Weights in huge pages: where malloc has them, and when the file is copied into them."""

import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from engine.config import EngineConfig
from engine.environment import HUGE_PAGES
from engine.gguf.cells import cell_bytes
from engine.gguf.header import read_header
from engine.hardware import Hardware
from engine.llama import devices
from engine.llama.hardware import huge_pages
from engine.llama.hardware.huge_pages import copies_weights, malloc_has_huge_pages
from engine.llama.hardware.loading import load_params
from engine.llama.hardware.placement import Placement
from engine.llama.hardware.plan import LoadPlan
from tests.models import model_path

ON_HOST = Placement(-1, tensor_split=(), overrides=(), devices=())
ASKING = """
import ctypes, re, sys
from pathlib import Path
size = 64 << 20
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
address = libc.malloc(ctypes.c_size_t(size)) + size // 2
for area in re.split(r"\\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
    begin, end = (int(number, 16) for number in area.split(" ", 1)[0].split("-"))
    if begin <= address < end:
        print(area.rsplit("VmFlags:", 1)[1].split())
"""
"""Prints the kernel's flags of memory that malloc has allocated."""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel that has huge pages for memory that asks for them, and a malloc that asks."""
    mode = tmp_path / "enabled"
    mode.write_text("always [madvise] never\n")
    monkeypatch.setattr(huge_pages, "_MODE", mode)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.35"))
    for name, value in HUGE_PAGES.items():
        monkeypatch.setenv(name, f"glibc.malloc.arena_max=4:{value}")
    return mode


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("other", ["", "glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=1073741824"])
def test_malloc_has_huge_pages_where_it_asks_for_them(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    assert malloc_has_huge_pages()
    for name in HUGE_PAGES:
        monkeypatch.setenv(name, other)
    assert not malloc_has_huge_pages()


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("library", [("glibc", "2.34"), ("glibc", "2.9"), ("", "")])
def test_only_newer_glibc_asks_for_huge_pages(monkeypatch: pytest.MonkeyPatch, library: tuple[str, str]) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: library)
    assert not malloc_has_huge_pages()


@pytest.mark.parametrize(("mode", "has"), [("[always] madvise never", True), ("always madvise [never]", False)])
def test_the_kernel_may_decide_alone(kernel: Path, monkeypatch: pytest.MonkeyPatch, mode: str, has: bool) -> None:
    for name in HUGE_PAGES:
        monkeypatch.delenv(name)
    kernel.write_text(mode)
    assert malloc_has_huge_pages() is has


def test_a_kernel_without_huge_pages_has_no_file_of_them(kernel: Path) -> None:
    kernel.unlink()
    assert not malloc_has_huge_pages()


def config(**hardware: Any) -> EngineConfig:
    return EngineConfig(model=str(model_path()), hardware=Hardware(**hardware))


@pytest.mark.usefixtures("kernel")
def test_weights_are_copied_where_two_engines_and_the_cached_file_have_room() -> None:
    needed = 3 * model_path().stat().st_size
    assert copies_weights(config(), ON_HOST, needed)
    assert not copies_weights(config(), ON_HOST, needed - 1)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("chosen", [{"context": 300}, {"earlier_context": 512}])
def test_there_must_be_room_for_a_chosen_context_and_prefix_store(chosen: dict[str, Any]) -> None:
    cells = cell_bytes(read_header(model_path()), "f16", "q8_0")
    own = replace(config(), slots=2, kv_type_v="q8_0", prefix_store=1000, **chosen)
    needed = 3 * model_path().stat().st_size + 2 * (2 * 512 * cells.token + 1000)
    assert cells.token
    assert copies_weights(own, ON_HOST, needed)
    assert not copies_weights(own, ON_HOST, needed - 1)


@pytest.mark.usefixtures("kernel")
def test_a_damaged_file_counts_with_its_size(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF")
    assert copies_weights(EngineConfig(model=str(damaged), context=512), ON_HOST, 12)
    assert not copies_weights(EngineConfig(model=str(damaged), context=512), ON_HOST, 11)


def test_weights_are_not_copied_without_huge_pages(kernel: Path) -> None:
    kernel.write_text("always madvise [never]")
    assert not copies_weights(config(), ON_HOST, 2**50)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("hardware", [{"load_mode": "mmap"}, {"load_mode": "mmap+mlock"}, {"numa": "distribute"}])
def test_the_operators_choice_comes_first(hardware: dict[str, Any]) -> None:
    assert not copies_weights(config(**hardware), ON_HOST, 2**50)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("layers", [-1, 0])
def test_a_machine_with_devices_reads_the_mapped_file(layers: int) -> None:
    with_devices = Placement(layers, tensor_split=(), overrides=(), devices=(devices.all_devices()[0],))
    assert not copies_weights(config(), with_devices, 2**50)


@pytest.mark.usefixtures("kernel")
def test_the_load_copies_or_maps() -> None:
    def mode(available: int) -> int:
        return int(load_params(config(), LoadPlan(ON_HOST, 0), available).c.load_mode)

    assert (mode(2**50), mode(0)) == (llama_cpp.LLAMA_LOAD_MODE_NONE, llama_cpp.LLAMA_LOAD_MODE_AUTO)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc"
    or not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists()
    or "[madvise]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(),
    reason="the kernel has no huge pages on request, or malloc is not glibc's",
)
@pytest.mark.parametrize("asks", [True, False])
def test_malloc_of_the_child_asks_the_kernel(asks: bool) -> None:
    environment = {**os.environ, **(HUGE_PAGES if asks else dict.fromkeys(HUGE_PAGES, ""))}
    flags = subprocess.run([sys.executable, "-c", ASKING], env=environment, capture_output=True, text=True, check=True)
    assert ("'hg'" in flags.stdout) is asks
