"""Short requests, of one token or one embedding: the time of one on an idle server, and how many a second.

    python -m tests.benchmarks.short_requests --model MODEL.gguf [--clients 1,32] [--requests 2000] [--embeddings]
        [--new-connections] [--port PORT] [--profile FILE]

Starts a server of its own, and reads the CPU time of its two processes (Linux, `/proc`) before and after each round.
With `--port` it measures another server, such as llama-server, without its CPU time. With `--profile` it samples the
gateway's process during the rounds by `py-spy`.
"""

import argparse
import asyncio
import contextlib
import selectors
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator

from tests.benchmarks.serving import GUARD, quantile, request_to, serving
from tests.failures.processes import cpu_seconds
from tests.program import engines_of

PROMPT = "Once upon a time there was a little girl who had a red ball and a dog. One day she went to"


def request(args: argparse.Namespace) -> bytes:
    """Return the bytes of the request that all clients send."""
    path, body = "/v1/completions", {"prompt": PROMPT, "max_tokens": 1, "temperature": 0}
    if args.embeddings:
        path, body = "/v1/embeddings", {"input": PROMPT}
    return request_to(path, body, *(("Connection: close",) if args.new_connections else ()))


class Client:
    """A client that sends the next request as soon as it has the response to the last one."""

    def __init__(self, port: int, data: bytes, selector: selectors.BaseSelector) -> None:
        self._port = port
        self._data = data
        self._selector = selector
        self._response = bytearray()
        self._sent_at = 0.0
        self._sock: socket.socket | None = None

    def send(self) -> None:
        """Send the request, on a new connection if the server or the request has ended the last one."""
        self._sent_at = time.perf_counter()
        if self._sock is None:
            self._sock = socket.create_connection(("127.0.0.1", self._port))
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(self._sock, selectors.EVENT_READ, self)
        self._sock.sendall(self._data)

    def receive(self) -> float | None:
        """Receive a part of the response. Returns the seconds of the request once it is complete."""
        assert self._sock is not None
        part = self._sock.recv(65536)
        self._response += part
        head, found, body = self._response.partition(b"\r\n\r\n")
        fields = head.lower()
        if not found or len(body) < int(fields.partition(b"content-length:")[2].partition(b"\r\n")[0]):
            if not part:
                raise RuntimeError("the server closed a connection in the middle of a response")
            return None
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a request failed: {bytes(self._response[-200:])!r}")
        self._response.clear()
        if b"\r\nconnection: close" in fields:
            self._selector.unregister(self._sock)
            self._sock.close()
            self._sock = None
        return time.perf_counter() - self._sent_at


def load(port: int, data: bytes, clients: int, requests: int) -> list[float]:
    """Return the seconds of each request of so many clients together."""
    times: list[float] = []
    with selectors.DefaultSelector() as selector:
        for _ in range(clients):
            Client(port, data, selector).send()
        begun = clients
        while len(times) < requests:
            for key, _ in selector.select():
                if (taken := key.data.receive()) is None:
                    continue
                times.append(taken)
                if begun < requests:
                    begun += 1
                    key.data.send()
    return times


@contextlib.contextmanager
def sampled(pid: int, file: str | None) -> Iterator[None]:
    """Sample a process by `py-spy` inside the context, if a file is given."""
    if file is None:
        yield
        return
    command = ["py-spy", "record", "--format", "raw", "--rate", "500", "--pid", str(pid), "--output", file]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as sampler:
        time.sleep(1)
        yield
        sampler.send_signal(2)


async def measure(args: argparse.Namespace, port: int, pids: tuple[int, ...]) -> None:
    for clients in map(int, args.clients.split(",")):
        for _ in range(args.rounds):
            before = [cpu_seconds(pid) for pid in pids]
            began = time.perf_counter()
            times = await asyncio.to_thread(load, port, request(args), clients, args.requests)
            seconds = time.perf_counter() - began
            spent = [(cpu_seconds(pid) - past) / len(times) * 1e3 for pid, past in zip(pids, before, strict=True)]
            cpu = "".join(f", {name} {ms:.2f} ms" for name, ms in zip(("gateway", "engine"), spent, strict=False))
            print(
                f"{clients} clients: {len(times) / seconds:.0f} requests/s, median {statistics.median(times) * 1e3:.2f}"
                f" ms, p99 {quantile(times, 0.99) * 1e3:.1f} ms; CPU a request{cpu}",
                flush=True,
            )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--clients", default="1,32")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--embeddings", action="store_true")
    parser.add_argument("--new-connections", action="store_true", help="a connection for each request")
    parser.add_argument("--port", type=int, help="of a server that runs already")
    parser.add_argument("--profile", metavar="FILE")
    parser.add_argument("flags", nargs="*", help="flags of the server, behind --")
    args = parser.parse_args()
    if args.port:
        await measure(args, args.port, ())
        return
    async with serving("--model", args.model, "--slots", "32", *args.flags) as served, asyncio.timeout(GUARD):
        with sampled(served.pid, args.profile):
            await measure(args, served.port, (served.pid, *engines_of(served.pid)))


if __name__ == "__main__":
    asyncio.run(main())
