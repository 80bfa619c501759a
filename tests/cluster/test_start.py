"""The start of a cluster: one that cannot start ends with one line for the operator, and what is left out is logged."""

import json
import shutil
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
    return run("-m", "gateway", "serve", "--ray", *flags)


def run(*arguments: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines of a Python program."""
    command = [sys.executable, *arguments]
    process = subprocess.run(
        command, cwd=ROOT, env=ray_environment(), stderr=subprocess.PIPE, text=True, check=False, timeout=3 * GUARD
    )
    return process.returncode, process.stderr.splitlines()


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


def test_a_file_of_a_folder_that_is_no_model_is_a_warning_of_the_application(tmp_path: Path) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("Not a model.")
    shutil.copy(model_path(), tmp_path / "good.gguf")
    build = "import json, sys; from gateway.cluster.application import build; build(json.loads(sys.argv[1]))"
    code, lines = run("-c", build, json.dumps({"models-dir": str(tmp_path)}))
    assert code == 0
    assert f"not served: --models-dir {str(path)!r}: this is not a GGUF file" in lines  # beside warnings of packages
