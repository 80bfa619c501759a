"""Secrets of the program stay in the gateway process."""

from pathlib import Path

import pytest

from tests.program import engines_of, serving_program


def test_the_engine_process_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLAMA_API_KEY", "LLAMA_GATEWAY_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "sk-secret")
    monkeypatch.setenv("OTHER_VARIABLE", "shown")
    with serving_program() as (process, _):
        (engine,) = engines_of(process.pid)
        found = Path(f"/proc/{engine}/environ").read_bytes()
    assert b"OTHER_VARIABLE=shown" in found
    assert b"sk-secret" not in found
