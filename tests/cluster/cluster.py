"""A running cluster as its clients and its operator see it."""

import http.client
import json
import os
import re
import secrets
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

from gateway.cluster.environment import LOCAL_RAY
from gateway.cluster.ingress.app import INGRESS
from gateway.server.listen import close, reserve

GUARD = 100.0
"""Seconds after which a test gives up waiting. Never a part of an assertion."""
POLL = 0.02
_LISTENS = "0A"
"""State of a listening socket in Linux's tables."""
_SAMPLE = re.compile(r'^([a-z_:]+)\{replica="(\w+)",(?:.*finished_reason="(\w+)")?.*\} (\S+)$')
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Cluster:
    """A cluster that serves."""

    port: int
    """Port of the proxy."""
    driver: subprocess.Popen[str]
    """The process that started it."""
    log: Path
    """Its log."""
    key: str
    """API key of its clients."""

    def update(self, **settings: object) -> None:
        """Serve with these settings. Waits until the cluster does."""
        self._drive(settings)

    def stop(self) -> None:
        """Stop the application, but not the proxy. Waits until it has stopped."""
        self._drive(None)

    def _drive(self, settings: Mapping[str, object] | None) -> None:
        assert self.driver.stdin is not None
        assert self.driver.stdout is not None
        self.driver.stdin.write(json.dumps(settings) + "\n")
        self.driver.stdin.flush()
        while (line := self.driver.stdout.readline()) != "done\n":
            assert line, f"the cluster has ended: {self.log.read_text()[-2000:]}"

    def ask(self, path: str, body: Mapping[str, Any] | None = None, key: str | None = None) -> tuple[int, bytes]:
        """Return the status and the body of one response. The request may have an API key of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD)
        try:
            headers = {"authorization": f"Bearer {key or self.key}"}
            data = None if body is None else json.dumps(body)
            connection.request("GET" if body is None else "POST", path, data, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def send(self, path: str, body: Mapping[str, Any], key: str | None = None) -> socket.socket:
        """Send a request, and return its connection, which the caller closes."""
        data = json.dumps(body).encode()
        sock = socket.create_connection(("127.0.0.1", self.port), GUARD)
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key or self.key}\r\n"
        sock.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        return sock

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the metrics of each replica that is up, summed over all labels but the reason of the end."""
        figures: dict[str, dict[str, float]] = {}
        for line in self._metrics():
            if (found := _SAMPLE.match(line)) and found[2] != INGRESS:
                name, replica, reason, value = found.groups()
                figures.setdefault(replica, defaultdict(float))[f"{name} {reason}" if reason else name] += float(value)
        return figures

    def waiting(self) -> int:
        """Return the number of requests that wait in the ingress."""
        (line,) = (line for line in self._metrics() if line.startswith("llama_gateway_ingress_waiting_requests{"))
        return int(line.rpartition(" ")[2])

    def _metrics(self) -> list[str]:
        status, page = self.ask("/metrics")
        assert status == 200, page
        assert b"replica_up" in page, page
        return page.decode().splitlines()

    def total(self, name: str) -> float:
        """Return one metric, summed over all replicas."""
        return sum(figures.get(name, 0) for figures in self.figures().values())

    def processes(self) -> list[int]:
        """Return all processes of the cluster."""
        return _descendants(self.driver.pid)

    def listening(self) -> list[IPv4Address | IPv6Address]:
        """Return the address of each socket on which a process of the cluster listens."""
        own = {link for pid in self.processes() for link in _open_files(pid)}
        tables = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        rows = (line.split() for table in tables for line in table.read_text().splitlines())
        return [_address(row[1]) for row in rows if row[3] == _LISTENS and f"socket:[{row[9]}]" in own]

    def replica_processes(self) -> list[int]:
        """Return the processes of the models' replicas."""
        return [pid for pid in self.processes() if b"ServeReplica" in _title(pid) and b":model-" in _title(pid)]

    def kill_ingress(self) -> None:
        """Kill the ingress, and wait until there is another one."""
        (pid,) = (pid for pid in self.processes() if b":ingress" in _title(pid))
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.ask("/livez")[0] == HTTPStatus.OK)

    @contextmanager
    def paused_when(self, condition: Callable[[], bool]) -> Iterator[None]:
        """Pause the engines inside the context, from a moment on in which a condition holds.

        Until then they run in short slices, so that the work that is looked for cannot end before it is seen.
        """
        engines = [pid for pid in self.processes() if b"engine.worker.main" in _title(pid)]

        def send(number: signal.Signals) -> None:
            for pid in engines:
                os.kill(pid, number)

        def look() -> bool:
            send(signal.SIGCONT)
            time.sleep(POLL)
            send(signal.SIGSTOP)
            return condition()

        try:
            eventually(look)
            yield
        finally:
            send(signal.SIGCONT)

    def kill_replica(self) -> int:
        """Kill one replica of a model, and return its process id."""
        pid = self.replica_processes()[0]
        os.kill(pid, signal.SIGKILL)
        return pid


@contextmanager
def running_cluster(log: Path, key: str, **settings: object) -> Iterator[Cluster]:
    """Run a cluster on a free port, for clients with an API key. Its log is in a file."""
    reserved = reserve("127.0.0.1", 0)
    port = reserved[0].getsockname()[1]
    released = ExitStack()
    released.callback(close, reserved)
    with (
        released,
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.driver", str(port)],
            cwd=_ROOT,
            env=ray_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as driver,
    ):
        cluster = Cluster(port, driver, log, key)
        try:
            cluster.update(**settings)
            yield cluster
        finally:
            assert driver.stdin is not None
            driver.stdin.close()


def ray_environment() -> dict[str, str]:
    """Return the environment of a process that starts Ray, with a token of its own."""
    own = {"RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(_ROOT)}
    return {**os.environ, **LOCAL_RAY, **own}


def eventually(condition: Any) -> Any:
    """Wait until a condition holds, and return it."""
    give_up = time.monotonic() + GUARD
    while not (found := condition()):
        assert time.monotonic() < give_up, "waited too long"
        time.sleep(POLL)
    return found


def _descendants(root: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _open_files(pid: int) -> list[str]:
    """Return what the descriptors of a process refer to."""
    try:
        return [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _address(written: str) -> IPv4Address | IPv6Address:
    """Return the address that Linux writes as words of the machine's byte order, before its port."""
    words = bytes.fromhex(written.partition(":")[0])
    packed = b"".join(struct.pack("!I", word) for (word,) in struct.iter_unpack("=I", words))
    found = ip_address(packed)
    return getattr(found, "ipv4_mapped", None) or found


def _title(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
