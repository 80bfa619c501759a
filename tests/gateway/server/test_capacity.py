"""The connection limit, from slots and queue, and the limit of open files for it."""

import resource
from pathlib import Path

import pytest

from gateway.program import main
from gateway.server.capacity import OTHER_FILES, SPARE_CONNECTIONS, TooManyFilesError, allow, connections_for


class Limits:
    """The system's limits of open files, as a process sees them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
        self.now = (soft, hard)
        monkeypatch.setattr(resource, "getrlimit", lambda _: self.now)
        monkeypatch.setattr(resource, "setrlimit", self.change)

    def change(self, _: int, limits: tuple[int, int]) -> None:
        self.now = limits


@pytest.mark.parametrize(("slots", "queue_limit"), [(1, 1), (8, 256), (256, 100_000)])
def test_the_connection_limit_exceeds_slots_and_queue(slots: int, queue_limit: int) -> None:
    assert connections_for(slots, queue_limit) == slots + queue_limit + SPARE_CONNECTIONS


@pytest.mark.parametrize("limits", [(1000, 1000), (1000, resource.RLIM_INFINITY), (resource.RLIM_INFINITY,) * 2])
def test_sufficient_file_limits_are_unchanged(monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]) -> None:
    system = Limits(monkeypatch, *limits)
    allow(1000 - OTHER_FILES)
    assert system.now == limits


@pytest.mark.parametrize("hard", [1001, resource.RLIM_INFINITY])
def test_the_soft_file_limit_is_raised(monkeypatch: pytest.MonkeyPatch, hard: int) -> None:
    system = Limits(monkeypatch, 1000, hard)
    allow(1001 - OTHER_FILES)
    assert system.now == (1001, hard)


def test_the_hard_file_limit_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    system = Limits(monkeypatch, 500, 1000)
    with pytest.raises(TooManyFilesError, match="need 1001 open files, and this process may have 1000;"):
        allow(1001 - OTHER_FILES)
    assert system.now == (500, 1000)


def test_a_limit_besides_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    system = Limits(monkeypatch, 256, resource.RLIM_INFINITY)

    def refuse(_: int, _limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")  # as macOS does

    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(TooManyFilesError, match="need 100001 open files, and the system refuses so many;"):
        allow(100_001 - OTHER_FILES)
    assert system.now == (256, resource.RLIM_INFINITY)


def test_the_program_refuses_a_queue_that_it_cannot_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "any.gguf"
    model.write_bytes(b"GGUF" + bytes(60))
    Limits(monkeypatch, 1024, 4096)
    assert main(["serve", "--model", str(model), "--port", "0", "--queue-limit", "100000"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("llama-gateway: --queue-limit and --slots need 100392 open files, ")
