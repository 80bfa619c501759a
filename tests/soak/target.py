"""The server under soak, as it is seen from outside: its clients, its engine, its figures."""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import orjson
from prometheus_client.parser import text_string_to_metric_families

from gateway.server.tls.certificates import TlsFiles
from tests.failures.processes import resident_bytes
from tests.gateway.server.sockets import Answer, Client, get
from tests.gateway.server.tls.certificates import files_in
from tests.gateway.server.tls.clients import TlsClient
from tests.gateway.server.unix_client import UnixClient
from tests.program import ROOT, engines_of
from tests.soak.watched import MARK

GUARD = 30.0
"""Seconds after which a wait for the server is a failure."""
PAUSE = 0.05
"""Seconds between two looks at the server."""

FLAGS = (
    *("--threads", "1", "--slots", "4", "--context", "512", "--queue-limit", "12", "--max-tokens", "64"),
    *("--prefix-store", "4000000", "--stored-responses", "50", "--stored-bytes", "1000000", "--body-limit", "300000"),
    *("--client-patience", "2", "--request-timeout", "60", "--grace", "5"),
)
"""Small limits, so that each is reached in every round."""


KEY = "sk-of-the-soak"
"""Secret of the key that stays."""


def with_key(request: bytes, secret: str) -> bytes:
    """Return a request with an API key, if it is HTTP as far as its host."""
    return request.replace(b"\r\nhost:", b"\r\nauthorization: Bearer %b\r\nhost:" % secret.encode(), 1)


@dataclass(frozen=True)
class Sample:
    """Figures of the server at a quiet moment."""

    seconds: float
    """Time since the start of the soak."""
    resident: int
    """Memory of the gateway in RAM, in bytes."""
    engine_resident: int
    """Memory of the engine in RAM, in bytes."""
    files: int
    """Open files of the gateway."""
    tasks: Counter[str]
    """Tasks of its event loop, by their names."""
    objects: int
    """Objects that its garbage collector tracks."""


class Target:
    """The program on the embedded model, with TLS on a port and without it on a Unix socket."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, files: TlsFiles, unix: Path, store: Path) -> None:
        self.process = process
        self.log = log
        self.store = store
        """Database of keys and usage."""
        self.changing_key = "sk-none"
        """Secret of a key that comes and goes."""
        self.files = files
        """Files of its certificate."""
        self._unix = unix
        self._begun = time.monotonic()
        self._port = 0

    @property
    def engine_pid(self) -> int | None:
        """Return the engine's process, or None while there is none."""
        return next(iter(engines_of(self.process.pid)), None)

    async def client(self, rng: random.Random) -> Client:
        """Return a client that is connected over TLS or over the Unix socket."""
        if rng.random() < 0.5:
            return UnixClient(self._unix)
        client = TlsClient(self._port, receive_buffer=rng.choice([None, None, 4096]))
        try:
            with anyio.fail_after(GUARD):
                await client.handshake()
        except BaseException:
            client.close()
            raise
        return client

    def raw_client(self) -> Client:
        """Return a client that is connected to the port and has said nothing of TLS."""
        return Client(self._port)

    async def ready(self) -> None:
        """Wait until the server listens and its model is loaded."""
        await self.logged("listening on https://127.0.0.1:")
        line = next(line for line in self.lines() if "listening on https" in line)
        self._port = int(line.partition("https://127.0.0.1:")[2].partition(" ")[0])

    def lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    async def logged(self, words: str, after: int = 0) -> str:
        """Wait for a line with `words` behind the first `after` lines with them, and return it."""
        with anyio.fail_after(GUARD):
            while len(found := [line for line in self.lines() if words in line]) <= after:
                assert self.process.poll() is None, f"the gateway ended: {self.lines()[-20:]}"
                await anyio.sleep(PAUSE)
        return found[after]

    async def get(self, path: str) -> Answer:
        """Return the answer to a GET with the key that stays."""
        client = UnixClient(self._unix)
        try:
            await client.send(with_key(get(path), KEY))
            return await client.answer()
        finally:
            client.close()

    async def until_idle(self) -> None:
        """Wait until no slot is in use; then no token of the KV cache may be active."""
        with anyio.fail_after(GUARD):
            while True:
                answer = await self.get("/slots")
                slots = orjson.loads(answer.body)
                if answer.status == 200 and all(slot["state"] == "idle" for slot in slots):
                    break
                await anyio.sleep(PAUSE)
        assert sum(slot["active_tokens"] for slot in slots) == 0, slots

    async def sample(self) -> Sample:
        """Return the figures, once the server is idle."""
        await self.until_idle()
        before = sum(MARK in line for line in self.lines())
        self.process.send_signal(signal.SIGUSR1)
        counts = json.loads((await self.logged(MARK, before)).partition(MARK)[2])
        engine = self.engine_pid
        return Sample(
            seconds=time.monotonic() - self._begun,
            resident=resident_bytes(self.process.pid),
            engine_resident=resident_bytes(engine) if engine else 0,
            files=self.open_files(),
            tasks=Counter(counts["tasks"]),
            objects=counts["objects"],
        )

    async def outcomes(self) -> tuple[float, Counter[str]]:
        """Return the number of requests for a model that the metrics count, and of those that have ended."""
        text = (await self.get("/metrics")).body.decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        total = sum(sample.value for sample in samples if sample.name == "llama_gateway_requests_total")
        ended: Counter[str] = Counter()
        for sample in samples:
            if sample.name == "llama_gateway_request_outcomes_total":
                ended[sample.labels["outcome"]] += int(sample.value)
        return total, ended

    def usage_rows(self) -> int:
        """Return the number of requests in the usage store."""
        with closing(sqlite3.connect(self.store)) as connection:
            (count,) = connection.execute("SELECT COALESCE(SUM(requests), 0) FROM usage").fetchone()
        return int(count)

    async def keys(self, *arguments: str) -> str:
        """Run `llama-gateway keys` and return its output."""
        command = [sys.executable, "-m", "gateway", "keys", *arguments, "--keys", str(self.store)]
        run = await anyio.run_process(command, cwd=ROOT, check=False)
        return run.stdout.decode()

    def open_files(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def stop(self) -> int:
        """Stop the server as an operator does, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(GUARD)


@contextmanager
def running(folder: Path, backend: str) -> Iterator[Target]:
    """Run the program. It is killed if it has not ended by itself."""
    files = files_in(folder)
    unix, log = folder / "gateway.sock", folder / "log"
    store = folder / "store.db"
    flags = [
        "--port",
        "0",
        "--api-key",
        KEY,
        "--keys",
        store,
        "--unix-socket",
        unix,
        "--tls-certificate",
        files.certificate,
        "--tls-key",
        files.key,
    ]
    command = [
        sys.executable,
        "-m",
        "tests.soak.watched",
        "serve",
        *FLAGS,
        "--async-backend",
        backend,
        *map(str, flags),
    ]
    with log.open("wb") as output, subprocess.Popen(command, cwd=ROOT, stderr=output) as process:
        try:
            yield Target(process, log, files, unix, store)
        finally:
            process.kill()
