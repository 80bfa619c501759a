"""Memory that is available, by made-up files of the kernel."""

from pathlib import Path

import pytest

from engine import control_groups, host_memory
from engine.host_memory import available_host_memory

GIB = 2**30
STAT = f"anon {4 * GIB}\ninactive_file {GIB}\nactive_file {GIB}\nfile {3 * GIB}\n"


@pytest.fixture(autouse=True)
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(control_groups, "_MOUNT", tmp_path)
    monkeypatch.setattr(control_groups, "_MEMBERSHIP", tmp_path / "membership")


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def left(mount: Path, groups: str = "0::/") -> int | None:
    """Return the memory that is left to a process in some control groups."""
    write(mount, {"membership": groups})
    return host_memory._memory_left()


def test_what_other_processes_use_is_not_left_but_cached_files_are(tmp_path: Path) -> None:
    write(tmp_path, {"memory.max": f"{8 * GIB}\n", "memory.current": f"{6 * GIB}\n", "memory.stat": STAT})
    assert left(tmp_path) == 4 * GIB


def test_version_1_has_other_names(tmp_path: Path) -> None:
    used = {"memory.limit_in_bytes": f"{8 * GIB}", "memory.usage_in_bytes": f"{6 * GIB}"}
    write(tmp_path / "memory", {**used, "memory.stat": f"{STAT}total_inactive_file 0\ntotal_active_file 5\n"})
    assert left(tmp_path, "4:memory:/docker/0123\n0::/") == 2 * GIB + 5


def test_the_limit_of_a_service_and_of_those_around_it_counts(tmp_path: Path) -> None:
    service = {"memory.max": f"{5 * GIB}\n", "memory.current": f"{2 * GIB}\n", "memory.stat": STAT}
    write(tmp_path / "a" / "service", service)
    assert left(tmp_path, "0::/a/service") == 5 * GIB
    write(tmp_path / "a", {**service, "memory.max": f"{3 * GIB}\n"})
    assert left(tmp_path, "0::/a/service") == 3 * GIB


@pytest.mark.parametrize("files", [{}, {"memory.max": "max\n", "memory.current": "5\n", "memory.stat": STAT}])
def test_without_a_limit_there_is_no_number(tmp_path: Path, files: dict[str, str]) -> None:
    assert left(write(tmp_path, files)) is None


def test_a_group_above_its_limit_has_no_memory_left(tmp_path: Path) -> None:
    write(tmp_path, {"memory.max": "100\n", "memory.current": "200\n", "memory.stat": "anon 200\n"})
    assert left(tmp_path) == 0


@pytest.mark.parametrize(("estimate", "available"), [(9, 4), (2, 2)])
def test_the_smaller_one_of_the_estimate_and_the_groups_rest_is_available(
    tmp_path: Path, estimate: int, available: int
) -> None:
    write(tmp_path, {"memory.max": f"{8 * GIB}\n", "memory.current": f"{6 * GIB}\n", "memory.stat": STAT})
    write(tmp_path, {"meminfo": f"MemTotal: 9 kB\nMemAvailable: {estimate * 2**20} kB\n"})
    write(tmp_path, {"membership": "0::/"})
    assert available_host_memory() == available * GIB


def test_without_the_kernels_files_the_memory_is_not_known() -> None:
    assert available_host_memory() is None
