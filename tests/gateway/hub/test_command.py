"""The commands `pull`, `list` and `remove`: their output, their exit codes, and the files afterwards."""

import os
from errno import EACCES
from pathlib import Path

import orjson
import pytest

from gateway.hub.cache import HubCache
from gateway.hub.reference import HubReference
from gateway.hub.source import HubSource
from tests.gateway.commands import ended
from tests.gateway.hub.cached import cached_model
from tests.gateway.hub.local_hub import COMMIT, REPOSITORY, LocalHub

FOLDER = "models--someone--some-GGUF"


@pytest.fixture(autouse=True)
def _environment(hub: LocalHub, cache: HubCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache.root))
    monkeypatch.setattr("gateway.hub.opening.hub_cache", lambda: cache)
    hub.files |= {f"big-Q8_0-0000{part}-of-00002.gguf": b"GGUF" * 1000 * part for part in (1, 2)}


@pytest.fixture
def pulled(source: HubSource) -> None:
    """Both models are on this machine."""
    for quant in ("Q4_K_M", "Q8_0"):
        source.fetch(HubReference(REPOSITORY, quant), lambda _share: None)


def test_pull_prints_the_path(cache: HubCache, hub: LocalHub, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ended(capsys, "pull", f"hf:{REPOSITORY}")
    assert code == 0
    assert out == f"{cache.root}/{FOLDER}/snapshots/{COMMIT}/some-Q4_K_M.gguf\n"
    hub.gated = True
    code, out, err = ended(capsys, "pull", f"hf:{REPOSITORY}:Q8_0")
    assert (code, out) == (3, "")
    assert err.splitlines()[-1].startswith(f"llama-gateway pull: {REPOSITORY} is gated: ")


@pytest.mark.usefixtures("pulled")
def test_list_shows_complete_and_other_models(cache: HubCache, capsys: pytest.CaptureFixture[str]) -> None:
    cache.blob("other/one", "x").parent.mkdir(parents=True)
    cache.blob("other/one", "x.incomplete").write_bytes(bytes(20_000_000))
    code, out, _ = ended(capsys, "list")
    assert code == 0
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["model", "size", "downloaded"],
        [f"hf:{REPOSITORY}:Q8_0", "0.01", "MB"],
        [f"hf:{REPOSITORY}:Q4_K_M", "1.28", "MB"],
        ["hf:other/one", "0.02", "GB"],
    ]
    listed = orjson.loads(ended(capsys, "list", "--json")[1])
    assert [(model["model"], model["bytes"], model["complete"]) for model in listed] == [
        (f"hf:{REPOSITORY}:Q8_0", 12_000, True),
        (f"hf:{REPOSITORY}:Q4_K_M", 1_280_000, True),
        ("hf:other/one", 20_000_000, False),
    ]
    assert Path(listed[0]["path"]).name == "big-Q8_0-00001-of-00002.gguf"


@pytest.mark.usefixtures("pulled")
def test_a_repository_that_may_not_be_read_is_left_out(
    cache: HubCache,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As that of another user in a folder that several share."""
    cached_model(cache, "another/secret", "some-Q4_K_M.gguf", b"x")
    secret, read_text = cache.folder("another/secret"), Path.read_text

    def refuse(path: Path) -> str:
        if secret in path.parents:
            raise PermissionError(EACCES, os.strerror(EACCES), str(path))
        return read_text(path)

    monkeypatch.setattr(Path, "read_text", refuse)
    code, out, _ = ended(capsys, "list")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (
        0,
        ["model", f"hf:{REPOSITORY}:Q8_0", f"hf:{REPOSITORY}:Q4_K_M"],
    )
    assert f"{secret} cannot be read: Permission denied" in caplog.text
    assert cache.find(HubReference("another/secret")) is None


@pytest.mark.usefixtures("pulled")
def test_remove_takes_all_parts_of_one_model_or_all_of_a_repository(
    cache: HubCache, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = ended(capsys, "remove", f"hf:{REPOSITORY}:Q8_0")
    assert (code, err) == (0, f"hf:{REPOSITORY}:Q8_0 is removed: 0.01 MB are free\n")
    assert [model.name for model in cache.models()] == ["some-Q4_K_M.gguf"]
    assert len(list((cache.root / FOLDER / "blobs").iterdir())) == 1
    code, _, err = ended(capsys, "remove", f"hf:{REPOSITORY}:Q8_0")
    assert (code, err) == (
        3,
        f"llama-gateway remove: hf:{REPOSITORY}:Q8_0: the repository {REPOSITORY} has no such model; it has Q4_K_M\n",
    )
    cache.blob(REPOSITORY, "x.incomplete").write_bytes(b"x")
    assert ended(capsys, "remove", f"hf:{REPOSITORY}")[0] == 0
    assert list(cache.root.iterdir()) == []
    code, _, err = ended(capsys, "remove", f"hf:{REPOSITORY}")
    assert (code, err) == (3, f"llama-gateway remove: hf:{REPOSITORY} is not on this machine\n")


@pytest.mark.usefixtures("pulled")
def test_remove_keeps_files_of_other_programs(cache: HubCache, capsys: pytest.CaptureFixture[str]) -> None:
    other = cache.root / FOLDER / "snapshots" / COMMIT / "config.json"
    other.write_text("{}")
    assert ended(capsys, "remove", f"hf:{REPOSITORY}")[0] == 0
    assert other.exists()
    assert list(cache.models()) == []


@pytest.mark.usefixtures("pulled")
def test_a_file_that_may_not_be_removed_is_one_line_and_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    code, out, err = ended(capsys, "remove", f"hf:{REPOSITORY}:Q4_K_M")
    assert (code, out) == (3, "")
    assert err.startswith(f"llama-gateway remove: hf:{REPOSITORY}:Q4_K_M cannot be removed: [Errno 13] ")
    assert err.endswith("some-Q4_K_M.gguf'\n")


def test_a_content_with_two_names_stays_until_both_are_removed(hub: LocalHub, cache: HubCache) -> None:
    digest = hub.entry("some-Q4_K_M.gguf")["lfs"]["sha256"]
    cache.blob(REPOSITORY, digest).parent.mkdir(parents=True)
    cache.blob(REPOSITORY, digest).write_bytes(b"x")
    for name in ("one.gguf", "two.gguf"):
        cache.link(REPOSITORY, COMMIT, name, digest)
    cache.remove(REPOSITORY, ["one.gguf"])
    assert cache.blob(REPOSITORY, digest).exists()
    cache.remove(REPOSITORY, ["two.gguf"])
    assert not (cache.root / FOLDER).exists()


def test_a_content_that_repositories_share_stays(
    hub: LocalHub, cache: HubCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = tmp_path / "shared"
    shared.write_bytes(bytes(10_000))
    digest = hub.entry("some-Q4_K_M.gguf")["lfs"]["sha256"]
    cache.blob(REPOSITORY, digest).parent.mkdir(parents=True)
    cache.blob(REPOSITORY, digest).symlink_to(shared)
    cache.link(REPOSITORY, COMMIT, "some-Q4_K_M.gguf", digest)
    assert ended(capsys, "remove", f"hf:{REPOSITORY}:Q4_K_M")[0] == 0
    assert shared.exists()
    assert list(cache.root.iterdir()) == []


def test_files_of_a_file_system_without_links_are_removed(cache: HubCache, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = cache.root / FOLDER / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for quant in ("Q4_K_M", "Q8_0"):
        (snapshot / f"some-{quant}.gguf").write_bytes(bytes(2_000_000))
    code, _, err = ended(capsys, "remove", f"hf:{REPOSITORY}:Q8_0")
    assert (code, err) == (0, f"hf:{REPOSITORY}:Q8_0 is removed: 2.00 MB are free\n")
    assert [model.name for model in cache.models()] == ["some-Q4_K_M.gguf"]
    assert ended(capsys, "remove", f"hf:{REPOSITORY}")[0] == 0
    assert list(cache.root.iterdir()) == []


def test_a_file_of_another_folder_that_a_snapshot_links_to_stays(cache: HubCache, tmp_path: Path) -> None:
    cached_model(cache, REPOSITORY, "some-Q4_K_M.gguf", b"x")
    own = tmp_path / "own.gguf"
    own.write_bytes(b"mine")
    link = cache.folder(REPOSITORY) / "snapshots" / "commit" / "own-Q8_0.gguf"
    link.symlink_to(own)
    assert cache.remove(REPOSITORY, ["own-Q8_0.gguf"]) == 0
    assert (own.exists(), link.is_symlink()) == (True, False)


@pytest.mark.parametrize("arguments", [("pull",), ("pull", "user/repo"), ("remove", "hf:repo"), ("list", "all")])
def test_wrong_arguments_are_one_line_and_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ended(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_missing_package_is_one_line_and_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.hub.command.find_spec", lambda _name: None)
    reason = 'llama-gateway list: this needs a package: pip install "llama-gateway[hub]"\n'
    assert ended(capsys, "list") == (2, "", reason)
