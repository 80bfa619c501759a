"""Fixtures of every test."""

import gc
import logging
import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio.testing
import trustme
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.backends import GPUS, TRIO_FIRST, VIRTUAL_CLOCK
from tests.postgres import installed, serving_postgres
from tests.prefork.forking import forked_processes
from tests.program import Embedded, serving_embedded
from tests.repeat import TIMES, further_cases, in_part, thorough

# The same examples on every machine, however slow it is.
settings.register_profile(
    "alike", deadline=None, derandomize=True, max_examples=50 * TIMES, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("alike")
# Examples with constants of the imported modules would depend on the other tests that run.
pytest.MonkeyPatch().setattr(providers, "_get_local_constants", Constants)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--part`."""
    parser.addoption("--part", metavar="K/N", help="run the K-th of N parts of the tests, which their names decide")


def pytest_configure(config: pytest.Config) -> None:
    """Drop settings for servers and proxies from the environment: they must not change the tests.

    Nothing here needs the public certificate authorities, which each HTTP client would load in 40 ms.
    """
    authority = ExitStack()
    os.environ["SSL_CERT_FILE"] = authority.enter_context(trustme.CA().cert_pem.tempfile())
    config.add_cleanup(authority.close)
    for name in list(os.environ):
        own = name.startswith("LLAMA_GATEWAY_") and not name.startswith("LLAMA_GATEWAY_TEST_")
        if own or name == "LLAMA_API_KEY":
            del os.environ[name]
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    if "LLAMA_GATEWAY_TEST_GPU" not in os.environ:  # its last bits depend on the rows of a step
        os.environ.update(dict.fromkeys(GPUS, ""))
    os.environ["OMP_WAIT_POLICY"] = "passive"  # spinning threads of llama.cpp are up to 100 times slower on busy cores
    if config.args_source is config.ArgsSource.TESTPATHS and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        config.args = _files(int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


def _files(worker: int, workers: int) -> list[str]:
    """Return the files of all tests, for each worker from another one on: in a new clone they share the compilation."""
    files = sorted(map(str, Path(__file__).parent.rglob("test_*.py")))
    first = worker * len(files) // workers
    return files[first:] + files[:first]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Run the longest tests first, so that none of them is alone at the end. `--part 2/5` leaves out four of five.

    Without paths in the command, further cases of a test are left to the thorough tests.
    """
    items.sort(key=lambda item: item.path)  # in which order the worker has collected them does not matter
    if config.args_source is config.ArgsSource.TESTPATHS:
        for item in further_cases(items):
            item.add_marker(thorough)
    yield
    if part := config.getoption("part"):
        others = [item for item in items if not in_part(item.nodeid, part)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if in_part(item.nodeid, part)]
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection() -> None:
    """Collect no garbage while modules are imported, which leave hardly any."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from the modules, which each full collection would scan."""
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """Return two processes more than there are cores: many tests wait for the processes that they start."""
    return (os.cpu_count() or 1) + 2


@pytest.fixture(scope="session", autouse=True)
def _forked_processes() -> Iterator[None]:
    with forked_processes():
        yield


@pytest.fixture(params=TRIO_FIRST)
def anyio_backend(request: pytest.FixtureRequest) -> str | tuple[str, dict[str, Any]]:
    """Run on both backends, on asyncio only with `-m thorough`. Folders override it by `on_each_backend`."""
    name: str = request.param
    return ("trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}) if name == VIRTUAL_CLOCK else name


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server: one for all tests, because its start takes a second."""
    with serving_postgres(installed()) as server:
        yield server


@pytest.fixture(scope="session")
def embedded() -> Iterator[Embedded]:
    """The program on its embedded model: one for all tests that use it as clients do."""
    with serving_embedded() as served:
        yield served


@pytest.fixture
def root_level() -> Iterator[None]:
    """The level of the root logger, which a test may change."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)
