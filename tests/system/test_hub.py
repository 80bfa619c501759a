"""The program with a model of the hub: its health during the download, its stop, its exit codes."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine import embedded_model
from tests.gateway.hub.local_hub import REPOSITORY, LocalHub, hub_of_the_embedded_model
from tests.program import GUARD, ROOT, program, said
from tests.repeat import thorough

MODEL = f"hf:{REPOSITORY}:Q4_K_M"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with hub_of_the_embedded_model(monkeypatch, tmp_path / "home") as hub:
        yield hub


def client_of(socket: Path) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://gateway", timeout=GUARD)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_server_downloads_its_model_and_tells_so(hub: LocalHub, tmp_path: Path, backend: str) -> None:
    hub.held.clear()
    socket = tmp_path / "gateway.sock"
    arguments = ("--model", MODEL, "--unix-socket", str(socket), "--threads", "1", "--async-backend", backend)
    with program(*arguments, "--host", "127.0.0.1") as process, client_of(socket) as client:
        said(process, "downloading some-GGUF: 50 %")
        health = client.get("/health")
        told: dict[str, Any] = health.json()
        assert (health.status_code, told["status"]) == (503, "downloading")
        assert 0.4 < told["progress"] < 0.6
        assert client.get("/livez").status_code == 200
        (model,) = client.get("/v1/models").json()["data"]
        assert model["id"] == "some-GGUF"
        assert client.post("/v1/completions", json={"model": "some-GGUF", "prompt": "a"}).status_code == 503
        hub.held.set()
        assert "serving some-GGUF (" in said(process, "listening on ")
        answer = client.post("/v1/completions", json={"model": MODEL, "prompt": "a", "max_tokens": 2}).json()
        assert answer["system_fingerprint"].startswith("fp_")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


@pytest.mark.usefixtures("hub")
def test_a_model_of_the_hub_among_several_keeps_to_their_memory(tmp_path: Path) -> None:
    """The first start downloads it. The second one finds it on this machine."""
    socket, memory = tmp_path / "gateway.sock", 600_000_000
    models = ("--model", f"f={embedded_model()}", "--model", f"h={MODEL}", "--models-memory", str(memory))
    for _ in range(2):
        with program(*models, "--unix-socket", str(socket), "--threads", "1") as process, client_of(socket) as client:
            said(process, "listening on ")
            for name in "fhfh":
                answer = client.post("/v1/completions", json={"model": name, "prompt": "a", "max_tokens": 2})
                assert answer.status_code == 200, answer.text
            metrics = client.get("/metrics").text
        taken = re.findall(r'^llama_gateway_model_host_bytes\{.*model_name="(\w)".*\} (\S+)$', metrics, re.MULTILINE)
        loaded = {name: float(size) for name, size in taken if float(size)}
        assert loaded.keys() == {"f", "h"}
        assert sum(loaded.values()) <= memory


def test_the_download_of_a_model_on_demand_is_shown(hub: LocalHub, tmp_path: Path) -> None:
    hub.held.clear()
    socket = tmp_path / "gateway.sock"
    models = ("--model", f"f={embedded_model()}", "--model", f"h={MODEL}", "--threads", "1")
    with program(*models, "--unix-socket", str(socket)) as process, client_of(socket) as client:
        said(process, "listening on ")
        assert client.post("/models/load", json={"model": "h"}).json() == {"success": True}
        said(process, "downloading h: 50 %")
        hub.held.set()
        said(process, "model loaded")


def test_a_signal_ends_a_download_that_the_next_start_continues(hub: LocalHub) -> None:
    hub.held.clear()
    with program("--model", MODEL) as process:
        said(process, "downloading some-GGUF: 50 %")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    hub.held.set()
    with program("--model", MODEL, "--threads", "1") as process:
        said(process, "listening on ")
    assert [request.partition("=")[2] for request in hub.requests if request.startswith("/storage")][1] > "1"


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Let processes be interrupted, also if the tests run in the background of a shell, which ignores Ctrl-C there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@thorough
@pytest.mark.usefixtures("_interruptible")
def test_ctrl_c_ends_a_pull_that_the_next_one_continues(hub: LocalHub) -> None:
    hub.held.clear()
    command = [sys.executable, "-m", "gateway", "pull", MODEL]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said(process, "downloading some-GGUF: 50 %")
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=GUARD)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "llama-gateway pull: interrupted; the next pull continues here"
    assert "Traceback" not in err
    hub.held.set()
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert Path(run.stdout.strip()).read_bytes() == embedded_model().read_bytes()


def test_a_model_that_cannot_be_had_is_one_line_and_3(hub: LocalHub) -> None:
    hub.gated = True
    with program("--model", MODEL, "--log-format", "json") as process:
        _, text = process.communicate(timeout=60)
    assert process.returncode == 3
    (line,) = [json.loads(line)["message"] for line in text.splitlines() if '"error"' in line.lower()]
    assert line.startswith(f"cannot serve some-GGUF: {REPOSITORY} is gated: accept its terms at {hub.endpoint}/")
    assert "Traceback" not in text
