"""The examples run as they stand, against the program on a real model."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.program import GUARD, ROOT, serving_program

EXAMPLES = ROOT / "examples"
TOLD = {
    "curl.sh": [
        '{"status":"ok","restarts":0}',
        "data: [DONE]",
        '{"success":true,',
        '"param":"temperature"',
        '"state":"idle"',
    ],
    "openai_sdk.py": ["CompletionUsage(", " …", "400 {"],
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving_program() as (_process, port):
        yield f"http://127.0.0.1:{port}"


def run(*command: str) -> str:
    environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
    example = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=GUARD, check=False)
    assert example.returncode == 0, example.stdout + example.stderr
    return example.stdout


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == TOLD.keys()


@pytest.mark.parametrize("name", TOLD)
def test_it_runs(url: str, name: str) -> None:
    python = name.endswith(".py")
    if not python and not shutil.which("curl"):
        pytest.skip("curl is not installed")
    told = run(sys.executable if python else "bash", str(EXAMPLES / name), url)
    assert [words for words in TOLD[name] if words not in told] == []
    while any(slot["is_processing"] for slot in httpx.get(f"{url}/slots", trust_env=False).json()):
        pass
