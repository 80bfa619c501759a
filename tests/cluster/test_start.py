"""A cluster that cannot start ends with one line for the operator."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.cluster import GUARD, ray_environment
from tests.models import model_path
from tests.program import ROOT

pytestmark = pytest.mark.cluster


def ended(*flags: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines of a cluster that ends by itself."""
    command = [sys.executable, "-m", "gateway", "serve", "--ray", *flags]
    run = subprocess.run(
        command, cwd=ROOT, env=ray_environment(), stderr=subprocess.PIPE, text=True, check=False, timeout=3 * GUARD
    )
    return run.returncode, run.stderr.splitlines()


def test_a_model_that_does_not_load_ends_with_its_reason_and_3(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(model_path().read_bytes()[:5_000])
    code, lines = ended("--port", "0", "--model", str(path))
    assert (code, lines[-1]) == (3, "llama-gateway: cut.gguf cannot be loaded: failed to read key-value pairs")
    assert not any("Exception Group" in line for line in lines)


def test_a_port_that_is_taken_is_one_line_and_4() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, lines = ended("--port", str(port))
    assert (code, lines) == (4, [f"llama-gateway: cannot listen on 127.0.0.1 port {port}: Address already in use"])
