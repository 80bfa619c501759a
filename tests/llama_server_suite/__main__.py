"""llama-server's own tests against this server, or against any other program with its command line.

    python -m tests.llama_server_suite LLAMA_CPP [--server COMMAND] [--model FILE] [pytest's options and files]

LLAMA_CPP is the unpacked source of llama.cpp, such as `vendor/llama.cpp` in the source distribution of
llama-cpp-python. Its tests are copied to a temporary folder and changed there at run time: they start COMMAND, download
nothing, and take FILE for every model. `--ranker FILE` is another one for tests of re-ranking. Tests of what needs a
network or a certain model fail, those of what this server does not have are deselected (`DESELECTED`).

It ends with a table of the files, the number of failures for each known reason (`known.KNOWN`), and a line for each
other failure. With one of these the exit code is 1.
"""

import argparse
import os
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.llama_server_suite.plugin import Suite

SERVER = f"{shlex.quote(sys.executable)} -m gateway serve --like llama-server"


def main() -> int:
    """Run the tests and print the table. Returns 1 if a test failed for no known reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.llama_server_suite")
    parser.add_argument("source", type=Path, metavar="LLAMA_CPP", help="unpacked source of llama.cpp")
    parser.add_argument("--server", default=SERVER, metavar="COMMAND", help="program with llama-server's command line")
    parser.add_argument("--model", type=Path, metavar="FILE", help="GGUF file of the model stories260K")
    parser.add_argument("--ranker", type=Path, metavar="FILE", help="GGUF file of a model that ranks; default: --model")
    options, rest = parser.parse_known_args()
    options.model, options.ranker = (file and file.resolve() for file in (options.model, options.ranker))
    with _copied(options.source.resolve()) as tests, _started_as(options.server, tests):
        suite = Suite(options.model, options.ranker)
        code = pytest.main(["--quiet", "--tb=no", "-m", "not slow", *(rest or ["unit"])], plugins=[suite])
    sys.stdout.write(suite.table())
    return bool(suite.unknown) if code == pytest.ExitCode.TESTS_FAILED else int(code)


@contextmanager
def _copied(source: Path) -> Iterator[Path]:
    """Work in a copy of the tests, beside the models' templates that they read."""
    with tempfile.TemporaryDirectory() as folder:
        tests = Path(folder) / "tools/server/tests"
        shutil.copytree(source / "tools/server/tests", tests)
        (Path(folder) / "models").symlink_to(source / "models")
        (tests / "tmp").mkdir()
        before = Path.cwd()
        os.chdir(tests)
        try:
            yield tests
        finally:
            os.chdir(before)


@contextmanager
def _started_as(command: str, tests: Path) -> Iterator[None]:
    """Set the environment in which the tests start a command."""
    program = tests / "llama-server"
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o700)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {
        "LLAMA_SERVER_BIN_PATH": str(program),
        "PORT": str(port),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    sys.path.insert(0, str(tests))
    yield


if __name__ == "__main__":
    sys.exit(main())
