"""Changes of llama-server's tests at run time, and their results."""

import importlib
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
import requests
from requests.structures import CaseInsensitiveDict

from tests.llama_server_suite.known import reason_of

DESELECTED = ("test_mcp_servers", "test_tools_builtin", "test_proxy", "test_compat_gcp", "test_vision_api")
"""Files of tests for what this server does not have."""

MOST_SECONDS = 60.0
"""Maximum time without a byte of an answer. The tests would wait for 10 minutes, or for ever."""


class Suite:
    """Plugin of pytest that changes the tests and collects their outcomes."""

    def __init__(self, model: Path | None, ranker: Path | None) -> None:
        """Set the files that stand for the models of the tests, and for the one that ranks; None downloads them."""
        self._model = model
        self._ranker = ranker
        self._outcomes: dict[str, Counter[str]] = {}
        self._failures: dict[str, str] = {}
        self._change_utils()

    def _change_utils(self) -> None:
        """Change the module that starts the servers, before the tests import it."""
        if self._model:
            sys.modules["wget"] = _copying(self._model)
        sys.modules.setdefault("wget", ModuleType("wget"))
        utils: Any = importlib.import_module("utils")
        utils.ServerPreset.load_all = lambda: None
        start = utils.ServerProcess.start

        def start_offline(server: Any, *args: Any, **options: Any) -> None:
            model = self._ranker if self._ranker and server.server_reranking else self._model
            if model and server.model_hf_repo:
                server.model_file, server.model_hf_repo, server.model_hf_file = str(model), None, None
            start(server, *args, **options)

        utils.ServerProcess.start = start_offline
        make = utils.ServerProcess.make_request

        def make_request(*args: Any, **options: Any) -> Any:
            result = make(*args, **options)
            result.headers = CaseInsensitiveDict(result.headers)  # as HTTP has it; the tests have llama-server's case
            return result

        utils.ServerProcess.make_request = make_request
        request = requests.Session.request

        def request_in_time(session: Any, *args: Any, **options: Any) -> Any:
            options["timeout"] = options.get("timeout") or MOST_SECONDS
            return request(session, *args, **options)

        requests.Session.request = request_in_time  # type: ignore[method-assign,assignment]

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the files that are not for this server."""
        kept = [item for item in items if item.path.stem not in DESELECTED]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the outcome of a test."""
        if report.when == "call" or report.outcome != "passed":
            outcomes = self._outcomes.setdefault(Path(report.fspath).stem, Counter())
            outcomes[report.outcome] += 1
            if report.failed:
                self._failures[report.nodeid.removeprefix("unit/")] = _message(report)

    @property
    def unknown(self) -> list[str]:
        """Tests that failed without a known reason."""
        return [test for test in self._failures if reason_of(test) is None]

    def table(self) -> str:
        """Return the numbers of each file and of all, the known reasons of failures, and a line for each other one."""
        total: Counter[str] = sum(self._outcomes.values(), Counter())
        rows = [*sorted(self._outcomes.items()), ("all", total)]
        lines = [f"{name:28} {_numbers(outcomes)}" for name, outcomes in rows]
        reasons = Counter(filter(None, map(reason_of, self._failures)))
        known = [f"{count} {reason}" for reason, count in reasons.most_common()]
        others = [f"{test}: {self._failures[test]}" for test in self.unknown]
        return "\n".join(["", f"{'':28} passed failed skipped", *lines, "", *known, "", *others, ""])


def _copying(model: Path) -> ModuleType:
    """Return a module in place of `wget` that copies a file instead of a download."""
    module: Any = ModuleType("wget")
    module.download = lambda _url, out: shutil.copyfile(model, out)
    return cast("ModuleType", module)


def _numbers(outcomes: Counter[str]) -> str:
    return f"{outcomes['passed']:6} {outcomes['failed']:6} {outcomes['skipped']:7}"


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join((crash.message if crash else str(report.longrepr)).split())[:200]
