"""Pulls by Ollama's own client, from a hub on this machine, while the program runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ollama
import pytest

from tests.gateway.hub.local_hub import REPOSITORY, LocalHub, hub_of_the_embedded_model
from tests.program import serving_embedded
from tests.test_examples import run

MODEL = f"hf.co/{REPOSITORY}:Q4_K_M"
ASKED = [{"role": "user", "content": "What is 17+25?"}]
GUARD = 60
"""Seconds after which a test gives up waiting. Never a part of an assertion."""
STORED = f"models--{REPOSITORY.replace('/', '--')}"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with hub_of_the_embedded_model(monkeypatch, tmp_path) as hub:
        yield hub


@contextmanager
def opened() -> Iterator[ollama.Client]:
    """Run the program and open a client."""
    with serving_embedded("--allow-pull") as server, ollama.Client(server.root) as client:
        yield client


def names(client: ollama.Client) -> list[str | None]:
    return [model.model for model in client.list().models]


def test_ollamas_client_pulls_uses_and_deletes_a_model(hub: LocalHub, tmp_path: Path) -> None:
    hub.held.clear()
    with opened() as client:
        for progress in client.pull(MODEL, stream=True):
            if progress.completed:
                break  # the client leaves
        assert hub.left.wait(GUARD)
        hub.held.set()
        statuses = [progress.status for progress in client.pull(MODEL, stream=True)]
        assert statuses[0] == "pulling manifest"
        assert statuses[-3:] == ["verifying sha256 digest", "writing manifest", "success"]
        assert hub.requests[-1].startswith("/storage/some-Q4_K_M.gguf bytes=")
        assert names(client) == ["tiny:latest", MODEL]
        answer = client.chat(MODEL, ASKED, options={"temperature": 0})
        assert answer.message.content == "17+25=42"
        assert client.delete(MODEL).status == "success"
        assert names(client) == ["tiny:latest"]
        assert not (tmp_path / "hub" / STORED).exists()


@pytest.mark.thorough
def test_pulls_survive_cuts_and_restarts_but_not_wrong_checksums(hub: LocalHub) -> None:
    hub.damaged = True
    with opened() as client:
        with pytest.raises(ollama.ResponseError, match="does not exist or is private"):
            client.pull("someone/else", stream=False)
        with pytest.raises(ollama.ResponseError, match="is damaged"):
            list(client.pull(MODEL, stream=True))
        hub.damaged, hub.cuts = False, [1000]
        assert client.pull(MODEL, stream=False).status == "success"
    with opened() as client:
        assert names(client) == ["tiny:latest", MODEL]
        printed = run("ollama_sdk_pull.py", str(client._client.base_url), MODEL).splitlines()
        assert (printed[0], printed[-2:]) == ("pulling manifest", ["success", "17+25=42"])
        with pytest.raises(ollama.ResponseError, match="does not exist"):
            client.delete(MODEL)
