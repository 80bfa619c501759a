"""The list of pulled models in a cache that several servers share."""

import fcntl
from pathlib import Path

import pytest

from gateway.hub.cache import HubCache
from gateway.hub.pulled import LIST, LOCKS, PulledModels
from gateway.hub.reference import HubReference

REPOSITORY = "someone/some"
MODEL, OTHER = HubReference(REPOSITORY, "Q8_0"), HubReference(REPOSITORY, "Q4_K_M")


@pytest.fixture
def cache(tmp_path: Path) -> HubCache:
    """Cache with two models of a repository."""
    cache = HubCache(tmp_path)
    for model in (MODEL, OTHER):
        blob = cache.blob(REPOSITORY, f"digest of {model.quant}")
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(b"x")
        cache.link(REPOSITORY, "commit", f"some-{model.quant}.gguf", blob.name)
    return cache


def test_no_other_server_edits_the_list_between_its_reading_and_its_writing(
    cache: HubCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, written = Path.replace, list[str]()

    def replace_alone(path: Path, target: Path) -> Path:
        (lock,) = (cache.root / LOCKS).glob("*/*")
        with lock.open("ab") as other_server, pytest.raises(BlockingIOError):
            fcntl.flock(other_server, fcntl.LOCK_EX | fcntl.LOCK_NB)
        written.append(target.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", replace_alone)
    PulledModels(cache).add(MODEL, ())
    PulledModels(cache).add(OTHER, ())
    PulledModels(cache).remove(MODEL)
    assert written == [LIST] * 3
    assert [reference for reference, _file in PulledModels(cache).all()] == [OTHER]


def test_the_last_model_of_a_repository_takes_its_folder_with_it(cache: HubCache) -> None:
    pulled = PulledModels(cache)
    for model in (MODEL, OTHER):
        pulled.add(model, ())
    assert [pulled.remove(model) for model in (MODEL, OTHER, OTHER)] == [1, 1, 0]
    assert not cache.folder(REPOSITORY).exists()
