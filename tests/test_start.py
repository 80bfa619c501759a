"""The modules that each process imports at its start, which is most of the time until the first token."""

import subprocess
import sys
from pathlib import Path

from engine.environment import command_for

ROOT = Path(__file__).parents[1]

BEFORE_THE_ENGINE = {
    "gateway.app",
    "gateway.bench",
    "gateway.server.server",
    "hypercorn",
    "jinja2",
    "starlette",
    "tqdm",
}
NOT_THE_GATEWAYS = {"engine.core", "engine.llama", "llama_cpp", "llguidance", "matplotlib", "numpy", "torch", "tqdm"}
NOT_THE_ENGINES = {"gateway", "hypercorn", "matplotlib", "pydantic", "starlette", "torch", "trio"}


def imported_by(command: list[str]) -> set[str]:
    """Return the names of all modules that an interpreter has imported when it ends."""
    *options, code = command
    code += "; import sys; print(*sys.modules)"
    run = subprocess.run([*options, code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return set(run.stdout.split())


def test_the_entry_points_handle_signals_before_they_import_the_program() -> None:
    modules = imported_by([sys.executable, "-c", "import gateway.__main__"])
    assert {name for name in modules if name.startswith(("gateway", "engine"))} == {
        "gateway",
        "gateway.__main__",
        "gateway.signals",
    }
    assert "anyio" not in modules


def test_the_engine_is_started_before_the_server_is_imported() -> None:
    modules = imported_by([sys.executable, "-c", "import gateway.program"])
    assert "engine.client.process" in modules
    assert not modules & (BEFORE_THE_ENGINE | NOT_THE_GATEWAYS)


def test_the_gateway_process_never_imports_the_compute_modules() -> None:
    modules = imported_by([sys.executable, "-c", "import gateway.program, gateway.app"])
    assert "gateway.app" in modules
    assert not modules & NOT_THE_GATEWAYS


def test_the_engine_process_imports_no_gateway_module() -> None:
    *options, code = command_for("engine.worker.main")
    modules = imported_by([*options, code.removesuffix("; main()")])
    assert "llama_cpp" in modules
    assert not modules & NOT_THE_ENGINES
