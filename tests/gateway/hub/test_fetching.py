"""The process that downloads, as the server sees it."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from gateway.hub.download_progress import DownloadProgress
from gateway.hub.errors import HubError
from gateway.hub.fetching import fetch
from gateway.hub.reference import HubReference
from tests.gateway.hub.local_hub import REPOSITORY, LocalHub
from tests.threads import refuse_in_thread

pytestmark = pytest.mark.anyio
REFERENCE = HubReference(REPOSITORY)


@pytest.fixture(autouse=True)
def _environment(hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HOME", str(tmp_path))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """The processes that the test starts."""
    found: list[Process] = []
    start = anyio.open_process

    async def open_process(command: list[str], **options: Any) -> Process:
        found.append(await start(command, **options))
        return found[-1]

    monkeypatch.setattr(anyio, "open_process", open_process)
    return found


async def test_a_model_arrives_with_progress(hub: LocalHub, tmp_path: Path) -> None:
    shares: list[float] = []
    path = await fetch(REFERENCE, lambda at: shares.append(at.share))
    assert path.is_relative_to(tmp_path / "hub")
    assert path.read_bytes() == next(iter(hub.files.values()))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    hub.requests.clear()
    assert await fetch(REFERENCE, lambda at: shares.append(at.share), offline=True) == path
    assert hub.requests == []


async def test_of_all_secrets_the_process_gets_the_token_alone(
    monkeypatch: pytest.MonkeyPatch, processes: list[Process]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf-secret")
    for name in ("LLAMA_API_KEY", "LLAMA_GATEWAY_API_KEY", "PGPASSWORD"):
        monkeypatch.setenv(name, "sk-secret")
    environments: list[bytes] = []

    def look(_at: DownloadProgress) -> None:
        environments.append(Path(f"/proc/{processes[0].pid}/environ").read_bytes())

    await fetch(REFERENCE, look)
    assert b"HF_TOKEN=hf-secret" in environments[0]
    assert b"sk-secret" not in environments[0]


async def test_a_lack_of_threads_is_an_error_of_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anyio, "open_process", refuse_in_thread)
    with pytest.raises(HubError, match=r"the process for the download cannot be started: can't start new thread$"):
        await fetch(REFERENCE, lambda _at: None)


async def test_warnings_are_in_the_log_of_the_server(hub: LocalHub, caplog: pytest.LogCaptureFixture) -> None:
    hub.cuts = [1000]
    await fetch(REFERENCE, lambda _share: None)
    (record,) = [record for record in caplog.records if record.name == "gateway.hub.fetching"]
    assert record.getMessage().startswith("some-Q4_K_M.gguf: resuming at byte 1000 (")


async def test_an_error_of_the_hub_is_raised_here(hub: LocalHub) -> None:
    hub.gated = True
    with pytest.raises(HubError, match="is gated: accept its terms"):
        await fetch(REFERENCE, lambda _share: None)


async def test_a_cancelled_download_ends_its_process_and_can_continue(hub: LocalHub, processes: list[Process]) -> None:
    hub.held.clear()  # contents stop in the middle
    with anyio.CancelScope() as scope:
        await fetch(REFERENCE, lambda at: scope.cancel() if at.share > 0 else None)
    assert scope.cancelled_caught
    assert [process.returncode for process in processes] == [-signal.SIGKILL]
    hub.held.set()
    assert (await fetch(REFERENCE, lambda _share: None)).read_bytes() == next(iter(hub.files.values()))
    assert hub.requests[-1].startswith("/storage/some-Q4_K_M.gguf bytes=")


async def test_a_process_that_dies_is_an_error(hub: LocalHub, processes: list[Process]) -> None:
    def kill(at: DownloadProgress) -> None:
        if at.share > 0:
            with suppress(ProcessLookupError):  # an earlier report has killed it
                os.kill(processes[0].pid, signal.SIGKILL)

    hub.held.clear()
    with pytest.raises(HubError, match="the process for the download ended unexpectedly"):
        await fetch(REFERENCE, kill)
    hub.held.set()
