"""Secrets of the program stay in the gateway process."""

from pathlib import Path

import pytest

from tests.models import model_path
from tests.program import engines_of, program_of_users, said


def test_the_engine_process_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLAMA_API_KEY", "LLAMA_GATEWAY_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "sk-secret")
    monkeypatch.setenv("OTHER_VARIABLE", "shown")
    with program_of_users("--model", str(model_path())) as process:
        said(process, "listening on")
        (engine,) = engines_of(process.pid)
        found = Path(f"/proc/{engine}/environ").read_bytes()
    assert b"OTHER_VARIABLE=shown" in found
    assert b"sk-secret" not in found
