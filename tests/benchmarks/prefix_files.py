"""The time to the first token after a restart, with and without prefixes on disk, measured from outside.

    python -m tests.benchmarks.prefix_files --model MODEL.gguf [--tokens 2000] [--restarts 3]

A first server computes a long system prompt and is stopped. Each later server is a new process; once its model is
loaded, one streaming completion is sent: the same system prompt and a question of its own. The files are in the page
cache, unless the machine has dropped them: a disk adds its own time.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tests.benchmarks.serving import connect, first_token_at, starting, wait_until_loaded

QUESTION = 20
"""Tokens behind the system prompt."""


def files_of(folder: str) -> list[Path]:
    return list(Path(folder).rglob("*.prefix"))


def served_once(arguments: list[str], prompt: list[int], *, until_in: str | None = None) -> float:
    """Return the seconds to the first token of a server's first request. It ends once a file is in a folder."""
    with starting(arguments) as (process, port):
        wait_until_loaded(process)
        connection = connect(port)
        began = time.perf_counter()
        seconds = first_token_at(connection, prompt) - began
        while until_in and not files_of(until_in):
            time.sleep(0.01)
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--restarts", type=int, default=3)
    chosen = parser.parse_args()
    system = [1000 + 37 * at % 20_000 for at in range(chosen.tokens)]
    base = ["--model", chosen.model, "--context", str(chosen.tokens + 200), "--slots", "2"]
    with tempfile.TemporaryDirectory() as folder:
        kept = [*base, "--prefix-dir", folder]
        first = served_once(kept, [*system, *range(1000, 1000 + QUESTION)], until_in=folder)
        size = sum(path.stat().st_size for path in files_of(folder))
        print(f"first start: {first:.2f} s to the first token, then {size / 2**20:.0f} MiB on disk")
        for name, arguments in (("with", kept), ("without", base)):
            times = [
                served_once(arguments, [*system, *range(2000 + at, 2000 + at + QUESTION)])
                for at in range(chosen.restarts)
            ]
            print(f"{name}: median {statistics.median(times):.2f} s of {' '.join(f'{one:.2f}' for one in times)}")


main()
