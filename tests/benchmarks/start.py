"""The time from `llama-gateway serve` to the first token, measured from outside, with a new process for each start.

    python -m tests.benchmarks.start [--model MODEL.gguf] [--starts 9] [--slots 8] [--backend trio]

A client asks `GET /health` as soon as the port can be reached, and is answered once the gateway serves HTTP. When the
program says that the model is loaded, one streaming completion of a short prompt is sent. All times are from the start.
A first start is not counted: it compiles the bytecode, which an installed program has, and reads the files from disk.
"""

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import astuple, dataclass

from tests.benchmarks.serving import connect, first_token_at, starting, wait_until_loaded

PARTS = ("gateway answers", "model loaded", "first token")


@dataclass(frozen=True)
class Start:
    """Seconds from the spawn to each of `PARTS`."""

    answers: float
    loaded: float
    token: float


def compiling_into(folder: str) -> dict[str, str]:
    """Return the environment of a Python that keeps its bytecode in that folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder}


def measure(arguments: list[str], environment: dict[str, str]) -> Start:
    begun = time.perf_counter()
    with starting(arguments, environment) as (process, port):
        connection = connect(port)
        connection.request("GET", "/health")
        connection.getresponse().read()
        connection.close()  # it would be idle for too long
        answers = time.perf_counter() - begun
        wait_until_loaded(process)
        loaded = time.perf_counter() - begun
        return Start(answers, loaded, first_token_at(connection, "Once upon a time") - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="default: the model inside the package")
    parser.add_argument("--starts", type=int, default=9)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--backend", default="trio")
    args = parser.parse_args()
    arguments = ["--slots", str(args.slots), "--async-backend", args.backend]
    if args.model:
        arguments += ["--model", args.model]
    with tempfile.TemporaryDirectory() as folder:
        environment = compiling_into(folder)
        _compiles, *starts = [astuple(measure(arguments, environment)) for _ in range(1 + args.starts)]
    print("| seconds from the start until | median | best | worst |\n|---|---|---|---|")
    for part, times in zip(PARTS, zip(*starts, strict=True), strict=True):
        print(f"| {part} | {statistics.median(times):.3f} | {min(times):.3f} | {max(times):.3f} |")


main()
