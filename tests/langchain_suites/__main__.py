"""LangChain's standard tests against this server, on the model inside or on another one.

    pip install -e ".[test,suites]" && python -m tests.langchain_suites [--sure] [--server URL] [pytest's options]

Tests in `BY_ABILITY` depend on what the model understands. `--sure` leaves them out, and otherwise their failures are
counted but do not count: the exit code is 1 if another test fails. It ends with a table.

The packages bring plugins for pytest, which are loaded here only.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.program import serving_embedded

SERVER = "LANGCHAIN_SUITES_SERVER"
"""Variable with the base URL of the server, for `suites.py`."""
FLAGS = ("--repeat-penalty", "1.5", "--dry-multiplier", "2")
"""Flags of the server. Without them the model inside fills constrained texts with one digit, up to the limit."""
BY_ABILITY = {
    "test_bind_runnables_as_tools": "the model must choose the tool by itself",
    "test_json_mode": "the model must choose the fields of the object by itself",
    "test_structured_output_optional_param": "the model must fill a field that it may leave out",
    "test_structured_output_pydantic_2_v1": "as test_json_mode: one of its ways sends no schema",
    "test_tool_calling": "the model must choose the tool, or its argument, by the question",
    "test_tool_calling_async": "as test_tool_calling",
    "test_tool_calling_with_no_arguments": "the model must give no argument to a tool that does not forbid others",
    "test_unicode_tool_call_integration": "the model must write Chinese",
}
"""Tests that depend on the model, with the reasons."""


class Outcomes:
    """Plugin of pytest that counts the outcomes of the tests."""

    def __init__(self) -> None:
        self._by_suite: dict[str, Counter[str]] = {}
        self._failed: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the outcome of a test."""
        if report.when == "call" or report.outcome != "passed":
            _, suite, test = report.nodeid.rsplit("::", 2)
            self._by_suite.setdefault(suite, Counter())[report.outcome] += 1
            if report.failed:
                self._failed[test.partition("[")[0]] += 1

    @property
    def wrong(self) -> list[str]:
        """Tests that have failed and do not depend on the model."""
        return sorted(self._failed.keys() - BY_ABILITY.keys())

    def table(self) -> str:
        """Return the numbers of each suite, and a line for each test that has failed."""
        total: Counter[str] = sum(self._by_suite.values(), Counter())
        rows = [*sorted(self._by_suite.items()), ("all", total)]
        lines = [f"{suite:22} " + ", ".join(f"{of[name]} {name}" for name in sorted(of)) for suite, of in rows]
        lines += [f"{times} x {test}: {BY_ABILITY.get(test, 'WRONG')}" for test, times in sorted(self._failed.items())]
        return "\n".join(lines) + "\n"


def main() -> int:
    """Run the tests and print the table. Returns 1 if a test fails that does not depend on the model."""
    parser = argparse.ArgumentParser(prog="python -m tests.langchain_suites")
    parser.add_argument("--sure", action="store_true", help="leave out the tests that depend on the model")
    parser.add_argument("--server", metavar="URL", help="base URL of a server; default: one on the model inside")
    options, rest = parser.parse_known_args()
    left_out = ["-k", " and ".join(f"not {test}" for test in BY_ABILITY)] if options.sure else []
    outcomes = Outcomes()
    with _server(options.server) as root, tempfile.TemporaryDirectory() as folder:
        os.environ |= {SERVER: root, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        code = pytest.main([*_pytest_options(folder), *left_out, *rest], plugins=[outcomes])
    sys.stdout.write(outcomes.table())
    return 1 if outcomes.wrong or code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED} else 0


@contextmanager
def _server(url: str | None) -> Iterator[str]:
    """Yield the URL of the given server, or of one that runs inside the context."""
    if url is not None:
        yield url
        return
    with serving_embedded(*FLAGS) as server:
        yield server.root


def _pytest_options(folder: str) -> list[str]:
    """Return options that keep out this project's configuration, and load the plugins that the tests need."""
    plugins = ("pytest_asyncio.plugin", "pytest_benchmark.plugin", "pytest_recording.plugin")
    asyncio = {"mode": "auto", "default_fixture_loop_scope": "session", "default_test_loop_scope": "session"}
    return [
        *("-c", os.devnull, "--rootdir", folder, "--noconftest", "--import-mode", "importlib", "--quiet", "--tb=no"),
        *("-p", "no:cacheprovider", "--benchmark-disable"),
        *(part for plugin in plugins for part in ("-p", plugin)),
        *(part for name, value in asyncio.items() for part in ("-o", f"asyncio_{name}={value}")),
        str(Path(__file__).with_name("suites.py")),
    ]


if __name__ == "__main__":
    sys.exit(main())
