"""API keys of the whole program: OpenAI's client, and the command that changes keys while the server uses them."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import orjson
import pytest
from openai import APIStatusError, AuthenticationError, OpenAI, PermissionDeniedError

from tests.program import GUARD, ROOT, serving_program

SECRETS: set[str] = set()
"""Secrets of all keys of the tests."""


class Server:
    """A server on a port, and the file of its keys."""

    def __init__(self, port: int, keys: Path) -> None:
        self._port = port
        self._keys = keys

    def client(self, secret: str, **headers: str) -> OpenAI:
        SECRETS.add(secret)
        return OpenAI(
            base_url=f"http://127.0.0.1:{self._port}/v1",
            api_key=secret,
            max_retries=0,
            timeout=GUARD,
            default_headers=headers,
        )

    def command(self, action: str, *arguments: str) -> Any:
        """Run the command in a process of its own."""
        command = [sys.executable, "-m", "gateway", "keys", action, "--keys", str(self._keys), "--json", *arguments]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=GUARD)
        return orjson.loads(run.stdout)


def ask_until(holds: Callable[[], bool]) -> None:
    """Repeat a request until its answer is the expected one."""
    end = time.monotonic() + GUARD
    while not holds():
        assert time.monotonic() < end, "the server does not see the change"


def is_accepted(client: OpenAI) -> bool:
    try:
        client.models.list()
    except AuthenticationError:
        return False
    return True


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = tmp_path_factory.mktemp("keys") / "keys.db"
    with serving_program(
        *("--keys", str(keys), "--api-key", "sk-given", "--slots", "2", "--context", "256"), *("--log-level", "debug")
    ) as (process, port):
        log: list[str] = []
        reader = Thread(target=log.extend, args=(process.stderr,))
        reader.start()
        yield Server(port, keys)
        process.terminate()
        process.wait(GUARD)
        reader.join(GUARD)
    assert not any(secret in line for line in log for secret in SECRETS)
    assert not any("Traceback" in line for line in log)


def test_a_valid_key_is_served_and_another_is_not(server: Server) -> None:
    with server.client("sk-given") as client:
        assert client.completions.create(model="default", prompt="a", max_tokens=2).usage
    with server.client("sk-wrong", **{"x-api-key": "sk-given"}) as client:
        with pytest.raises(AuthenticationError) as caught:
            client.chat.completions.create(model="default", messages=[{"role": "user", "content": "a"}], stream=True)
        assert caught.value.code == "invalid_api_key"
        assert caught.value.response.headers["www-authenticate"] == "Bearer"
    with server.client("sk-wrong", authorization="", **{"x-api-key": "sk-given"}) as client:
        assert client.models.list().data


def test_changes_by_the_command_reach_the_running_server(server: Server) -> None:
    made = server.command("add", "--name", "alice", "--models", "another")
    with server.client(made["secret"]) as client:
        ask_until(lambda: is_accepted(client))
        assert client.models.list().data == []
        with pytest.raises(PermissionDeniedError) as caught:
            client.completions.create(model="default", prompt="a")
        assert caught.value.code == "model_not_allowed"
        server.command("limits", "alice", "--models", "all")
        ask_until(lambda: bool(client.models.list().data))
        assert client.completions.create(model="default", prompt="a", max_tokens=2).usage

        rotated = server.command("rotate", "alice")
        ask_until(lambda: not is_accepted(client))
    with server.client(rotated["secret"]) as client:
        assert is_accepted(client)
        server.command("revoke", "alice")
        ask_until(lambda: not is_accepted(client))


def test_the_health_needs_no_key_and_the_rest_does(server: Server) -> None:
    with server.client("sk-wrong") as client:
        health = client.get("/../health", cast_to=object)
        assert health == {"status": "ok", "restarts": 0}
        with pytest.raises(APIStatusError) as caught:
            client.get("/../slots", cast_to=object)
        assert caught.value.status_code == 401
