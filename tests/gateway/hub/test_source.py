"""Models from a hub that cuts connections, sends wrong bytes, refuses, or is away."""

import errno
import fcntl
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import IO, Any

import pytest

from gateway.hub.cache import HubCache
from gateway.hub.client import HubClient
from gateway.hub.download_progress import DownloadProgress
from gateway.hub.errors import HubError
from gateway.hub.reference import HubReference
from gateway.hub.source import HubSource
from gateway.hub.transfer import Transfer
from tests.gateway.hub.local_hub import COMMIT, REPOSITORY, LocalHub

GUARD = 20
"""Seconds after which a hanging test fails."""
NAME = "some-Q4_K_M.gguf"
REFERENCE = HubReference(REPOSITORY)


def fetched(source: HubSource, reference: HubReference = REFERENCE) -> tuple[Path, list[float]]:
    shares: list[float] = []
    return source.fetch(reference, lambda at: shares.append(at.share)), shares


def failure(source: HubSource, reference: HubReference = REFERENCE) -> str:
    with pytest.raises(HubError) as raised:
        source.fetch(reference, lambda _share: None)
    text = str(raised.value)
    assert "\n" not in text
    return text


def contents(hub: LocalHub) -> list[str]:
    """Return the ranges of the requests for contents."""
    return [request.partition(" ")[2] for request in hub.requests if request.startswith("/storage/")]


def test_a_model_is_downloaded_once(hub: LocalHub, source: HubSource, cache: HubCache) -> None:
    path, shares = fetched(source)
    assert path == cache.root / "models--someone--some-GGUF" / "snapshots" / COMMIT / NAME
    assert path.read_bytes() == hub.files[NAME]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert fetched(source)[0] == path
    assert contents(hub) == [""]


def test_a_cut_connection_is_resumed_where_it_ended(hub: LocalHub, source: HubSource) -> None:
    hub.cuts = [100_000, 1, 500_000]
    path, _ = fetched(source)
    assert path.read_bytes() == hub.files[NAME]
    assert contents(hub) == ["", "bytes=100000-", "bytes=100001-", "bytes=600001-"]


def test_a_download_continues_after_its_process_ended(hub: LocalHub, source: HubSource, cache: HubCache) -> None:
    blob = cache.blob(REPOSITORY, str(hub.entry(NAME)["lfs"]["sha256"]))
    blob.parent.mkdir(parents=True)
    blob.with_name(f"{blob.name}.incomplete").write_bytes(hub.files[NAME][:777_777])
    path, shares = fetched(source)
    assert path.read_bytes() == hub.files[NAME]
    assert contents(hub) == ["bytes=777777-"]
    assert shares[0] == 777_777 / len(hub.files[NAME])
    assert [file.name for file in blob.parent.iterdir()] == [blob.name]


def test_bytes_that_are_reported_outlive_the_process(hub: LocalHub, source: HubSource, cache: HubCache) -> None:
    blob = cache.blob(REPOSITORY, str(hub.entry(NAME)["lfs"]["sha256"]))
    partial = blob.with_name(f"{blob.name}.incomplete")
    reported: list[tuple[int, int]] = []

    def report(at: DownloadProgress) -> None:
        if partial.exists():
            reported.append((at.completed, partial.stat().st_size))

    hub.cuts = [1000, 5000]
    source.fetch(REFERENCE, report)
    assert {completed for completed, _ in reported} >= {1000, 6000}
    assert all(completed == size for completed, size in reported)


def test_a_hub_that_ignores_ranges_sends_all_again(hub: LocalHub, source: HubSource) -> None:
    hub.cuts = [100_000]
    hub.ignores_ranges = True
    path, _ = fetched(source)
    assert path.read_bytes() == hub.files[NAME]


def test_a_wrong_checksum_is_an_error_and_the_next_try_begins_anew(hub: LocalHub, source: HubSource) -> None:
    hub.damaged = True
    assert failure(source).startswith(f"{NAME} is damaged: the download has 1280000 bytes with checksum ")
    hub.damaged = False
    assert fetched(source)[0].read_bytes() == hub.files[NAME]
    assert contents(hub) == ["", ""]


def test_an_endless_answer_does_not_fill_the_disk(hub: LocalHub, source: HubSource, cache: HubCache) -> None:
    hub.endless = True
    assert f"{NAME} is damaged: the download has " in failure(source)
    assert [path.stat().st_size for _, path in cache.partials()] == [0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rfilename": "../../../../outside.gguf"},
        {"rfilename": "/outside.gguf"},
        {"rfilename": "folder//outside.gguf"},
        {"rfilename": "a\0b.gguf"},
        {"rfilename": "a\nb\x1b[2J.gguf"},
        {"rfilename": 5},
        {"lfs": None, "blobId": "../../../outside"},
        {"lfs": {"size": 1, "sha256": "/outside", "pointerSize": 1}},
        {"size": -1},
        {"size": "1"},
    ],
)
def test_what_would_leave_the_folder_of_the_repository_is_refused(
    hub: LocalHub, source: HubSource, cache: HubCache, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]
) -> None:
    entry = hub.entry(NAME) | wrong
    monkeypatch.setattr(hub, "entry", lambda _name: entry)
    assert failure(source).endswith(f"{hub.endpoint} does not speak the hub's protocol: check HF_ENDPOINT")
    assert not cache.root.exists()


@pytest.mark.parametrize("commit", ["../../../outside", "/outside", "", 5])
def test_a_commit_that_is_none_is_refused(hub: LocalHub, source: HubSource, cache: HubCache, commit: str) -> None:
    hub.commit = commit
    assert "does not speak the hub's protocol" in failure(source)
    assert not cache.root.exists()


def test_bytes_that_are_wrong_before_a_cut_are_found(hub: LocalHub, source: HubSource, cache: HubCache) -> None:
    blob = cache.blob(REPOSITORY, str(hub.entry(NAME)["lfs"]["sha256"]))
    blob.parent.mkdir(parents=True)
    blob.with_name(f"{blob.name}.incomplete").write_bytes(bytes(1000))
    assert "is damaged" in failure(source)
    assert not blob.exists()


def test_a_small_file_outside_the_large_file_storage_is_checked_too(
    hub: LocalHub, source: HubSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = hub.entry(NAME)
    monkeypatch.setattr(hub, "entry", lambda _name: {**entry, "lfs": None})
    path, _ = fetched(source)
    assert path.resolve().name == entry["blobId"]


def test_a_hub_out_of_order_is_asked_again_after_longer_and_longer_pauses(hub: LocalHub, tmp_path: Path) -> None:
    hub.statuses = [503, 429, 500]
    client = HubClient(hub.endpoint)
    pauses: list[float] = []
    transfer = Transfer(client, REPOSITORY, COMMIT, pause=pauses.append)
    file = client.listing(REPOSITORY).files[NAME]
    transfer.run(file, tmp_path / "blob", lambda _size: None)
    assert pauses == [1, 2, 4]
    hub.statuses = [503] * 6
    with pytest.raises(HubError, match="is out of order: it answered with status 503"):
        transfer.run(file, tmp_path / "another", lambda _size: None)
    assert pauses == [1, 2, 4, 1, 2, 4, 8, 16]


def test_all_parts_are_downloaded_and_the_first_is_the_model(hub: LocalHub, source: HubSource) -> None:
    parts = [f"Q8_0/big-Q8_0-0000{part}-of-00003.gguf" for part in (1, 2, 3)]
    hub.files = {name: name.encode() * 1000 for name in parts}
    path, shares = fetched(source)
    assert [file.read_bytes() for file in sorted(path.parent.iterdir())] == list(hub.files.values())
    assert path.name == "big-Q8_0-00001-of-00003.gguf"
    assert shares == sorted(shares)


def test_a_model_on_this_machine_is_served_without_a_hub(
    hub: LocalHub, source: HubSource, cache: HubCache, caplog: pytest.LogCaptureFixture
) -> None:
    path, _ = fetched(source)
    away = HubSource(HubClient("http://127.0.0.1:1"), cache, offline=False)
    with caplog.at_level(logging.WARNING):
        assert fetched(away)[0] == path
    assert "is used as it is on this machine: no connection to http://127.0.0.1:1" in caplog.text
    hub.listing_status = 503
    assert fetched(source)[0] == path
    hub.requests.clear()
    assert fetched(HubSource(HubClient(hub.endpoint), cache, offline=True))[0] == path
    assert hub.requests == []


def no_room(_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=0))
    return "needs 0.0 GB more"


def full_disk(_hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> str:
    def cannot_write(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Transfer, "run", cannot_write)
    return "No space left on device"


def damaged(hub: LocalHub, _monkeypatch: pytest.MonkeyPatch) -> str:
    hub.damaged = True
    return "is damaged"


def gated(hub: LocalHub, _monkeypatch: pytest.MonkeyPatch) -> str:
    hub.gated = True
    return "accept its terms"


def renamed(hub: LocalHub, _monkeypatch: pytest.MonkeyPatch) -> str:
    hub.files = {"other-Q2_K.gguf": b"x"}
    return "has no such model; it has Q2_K"


@pytest.mark.parametrize("obstacle", [no_room, full_disk, damaged, gated, renamed])
def test_a_newer_version_that_cannot_be_had_leaves_the_one_on_this_machine(
    obstacle: Callable[[LocalHub, pytest.MonkeyPatch], str],
    hub: LocalHub,
    source: HubSource,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reference = HubReference(REPOSITORY, "Q4_K_M")
    path, _ = fetched(source, reference)
    before = path.read_bytes()
    hub.files, hub.commit = {NAME: b"newer"}, "d" * 40
    with monkeypatch.context() as patched:
        reason = obstacle(hub, patched)
        assert fetched(source, reference)[0].read_bytes() == before
    assert f"{reference} is used as it is on this machine: " in caplog.text
    assert reason in caplog.text
    hub.files, hub.damaged, hub.gated = {NAME: b"newer"}, False, False
    assert fetched(source, reference)[0].read_bytes() == b"newer"


def test_a_model_that_is_not_there_is_one_line_without_a_hub(cache: HubCache) -> None:
    away = HubSource(HubClient("http://127.0.0.1:1"), cache, offline=False)
    assert failure(away).startswith(f"hf:{REPOSITORY} is not in {cache.root}, and no connection to http://127.0.0.1:1")
    offline = HubSource(HubClient("http://127.0.0.1:1"), cache, offline=True)
    assert failure(offline) == f"hf:{REPOSITORY} is not in {cache.root}, and the hub is not asked: --offline"


def test_an_unfinished_download_is_not_served(hub: LocalHub, source: HubSource, cache: HubCache) -> None:
    hub.files = {f"big-Q8_0-0000{part}-of-00002.gguf": b"x" * part for part in (1, 2)}
    first = hub.entry("big-Q8_0-00001-of-00002.gguf")["lfs"]["sha256"]
    cache.blob(REPOSITORY, first).parent.mkdir(parents=True)
    cache.blob(REPOSITORY, first).write_bytes(b"x")
    cache.link(REPOSITORY, COMMIT, "big-Q8_0-00001-of-00002.gguf", first)
    assert "is not in" in failure(HubSource(HubClient(hub.endpoint), cache, offline=True))
    assert fetched(source)[0].exists()
    assert contents(hub) == [""]


def test_a_token_opens_a_private_repository(hub: LocalHub, source: HubSource, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_secret"  # noqa: S105 - of the test
    assert "someone/some-GGUF does not exist or is private: check the name, or set HF_TOKEN" in failure(source)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert fetched(source)[0].exists()


def test_a_gated_repository_names_the_page_with_its_terms(hub: LocalHub, source: HubSource) -> None:
    hub.gated = True
    assert failure(source) == (
        f"{REPOSITORY} is gated: accept its terms at {hub.endpoint}/{REPOSITORY}, and set HF_TOKEN"
    )


def test_an_unknown_quantisation_lists_the_others(hub: LocalHub, source: HubSource) -> None:
    hub.files |= {"some-Q8_0.gguf": b"x", "mmproj-some-F16.gguf": b"x"}
    assert failure(source, HubReference(REPOSITORY, "Q2_K")) == (
        f"hf:{REPOSITORY}:Q2_K: the repository {REPOSITORY} has no such model; it has Q4_K_M, Q8_0"
    )


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (401, "Invalid credentials in Authorization header", "{endpoint} does not accept the token: check HF_TOKEN"),
        (403, "", "the token has no access to someone/some-GGUF: check its permissions, or HF_TOKEN"),
        (404, "", "someone/some-GGUF with status 404"),
        (418, "", "{endpoint} refused someone/some-GGUF with status 418"),
    ],
)
def test_a_refusal_is_one_line(hub: LocalHub, source: HubSource, status: int, message: str, reason: str) -> None:
    hub.listing_status, hub.message = status, message
    assert reason.format(endpoint=hub.endpoint) in failure(source)


def test_the_hubs_own_variable_forbids_to_ask_it(
    hub: LocalHub, source: HubSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = fetched(source)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert fetched(source)[0] == path
    path.unlink()
    assert "the hub is not asked: HF_HUB_OFFLINE is set" in failure(source)
    assert hub.requests == []


def test_an_endpoint_that_is_no_hub_is_one_line(
    hub: LocalHub, source: HubSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "listing", lambda: b"<html>Not a hub</html>")
    assert f"{hub.endpoint} does not speak the hub's protocol: check HF_ENDPOINT" in failure(source)
    monkeypatch.setattr(hub, "listing", lambda: b"{}")
    assert f"{hub.endpoint} does not speak the hub's protocol: check HF_ENDPOINT" in failure(source)


@pytest.mark.parametrize("endpoint", ["http://", "ftp://127.0.0.1", "nonsense", "http://[::1"])
def test_an_endpoint_that_is_no_url_is_one_line(cache: HubCache, endpoint: str) -> None:
    assert f"and no connection to {endpoint}: " in failure(HubSource(HubClient(endpoint), cache, offline=False))


def test_two_downloads_of_one_file_are_one(hub: LocalHub, source: HubSource, cache: HubCache) -> None:
    hub.held.clear()
    began = Event()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(source.fetch, REFERENCE, lambda at: began.set() if at.share > 0 else None)
        assert began.wait(GUARD)
        second = pool.submit(HubSource(HubClient(hub.endpoint), cache, offline=False).fetch, REFERENCE, lambda _: None)
        hub.held.set()
        assert first.result(GUARD) == second.result(GUARD)
    assert contents(hub) == [""]
    assert [path.name for path in cache.root.rglob("*.incomplete")] == []


def test_a_download_that_is_removed_before_its_turn_begins_in_a_new_file(
    hub: LocalHub, source: HubSource, cache: HubCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, removed = fcntl.flock, list[str]()

    def remove_first(file: IO[bytes], operation: int) -> None:
        if not removed:
            removed.append(file.name)
            Path(file.name).unlink()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    path, _ = fetched(source)
    assert path.read_bytes() == hub.files[NAME]
    assert (len(removed), list(cache.root.rglob("*.incomplete"))) == (1, [])


def test_a_download_is_open_for_writing_when_it_is_locked_for_its_removal(
    cache: HubCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS gives an exclusive lock only then."""
    partial = cache.blob("someone/some", "digest.incomplete")
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"part")
    modes: list[int] = []

    def note(file: IO[bytes], _operation: int) -> None:
        modes.append(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE)

    monkeypatch.setattr(fcntl, "flock", note)
    assert cache.remove_partials("someone/some") == len(b"part")
    assert modes == [os.O_RDWR]


def test_a_download_that_runs_is_not_removed(cache: HubCache) -> None:
    partial = cache.blob("someone/some", "digest.incomplete")
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"part")
    with partial.open("rb") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        assert cache.remove_partials("someone/some") == 0
        assert partial.exists()
    assert cache.remove_partials("someone/some") == len(b"part")
    assert not cache.folder("someone/some").exists()


def test_a_download_that_another_program_completes_meanwhile_has_its_whole_size(
    cache: HubCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = cache.blob("someone/some", "digest")
    partial = blob.with_name(f"{blob.name}.incomplete")
    blob.parent.mkdir(parents=True)
    partial.write_bytes(b"whole")
    stat = Path.stat

    def complete_first(path: Path, **options: bool) -> os.stat_result:
        if path == partial:
            path.rename(blob)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", complete_first)
    assert cache.size_of("someone/some", "digest") == len(b"whole")


def test_a_link_that_another_program_makes_meanwhile_is_used(
    hub: LocalHub, source: HubSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Path.symlink_to

    def link_after_another(path: Path, target: Path) -> None:
        link(path, target)
        link(path, target)

    monkeypatch.setattr(Path, "symlink_to", link_after_another)
    path, _ = fetched(source)
    assert path.read_bytes() == hub.files[path.name]


def test_the_commit_of_main_stays_if_the_disk_is_too_full_for_a_new_one(
    cache: HubCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_nothing(path: Path, _text: str) -> None:
        path.touch()
        os.truncate(path, 0)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache.link("someone/some", "old", "some.gguf", "digest")
    monkeypatch.setattr(Path, "write_text", write_nothing)
    with pytest.raises(OSError, match="No space left on device"):
        cache.link("someone/some", "new", "some.gguf", "digest")
    refs = cache.folder("someone/some") / "refs"
    assert [(file.name, file.read_text()) for file in refs.iterdir()] == [("main", "old")]


def test_a_full_disk_is_found_before_the_download(
    hub: LocalHub, source: HubSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=0))
    assert failure(source).startswith(f"{REFERENCE} needs 0.0 GB more in ")
    assert contents(hub) == []


def test_the_room_for_all_parts_is_checked_before_the_first(
    hub: LocalHub, source: HubSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files = {f"some-0000{part}-of-00002.gguf": bytes(1000 + part) for part in (1, 2)}
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=2002))
    assert failure(source).startswith(f"{REFERENCE} needs 0.0 GB more in ")
    assert contents(hub) == []
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=2003))
    assert fetched(source)[0].name == "some-00001-of-00002.gguf"
