"""Command and environment of child processes, without the secrets of this program."""

import sys
from collections.abc import Mapping
from pathlib import Path

PREFIX = "LLAMA_GATEWAY_"
"""Prefix of the variables of this program, which only the gateway process reads."""
SECRETS = frozenset(
    {
        "LLAMA_API_KEY",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        "PGPASSWORD",
        "RAY_AUTH_TOKEN",
    }
)
"""Other variables with secrets that only the gateway process reads."""
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Lets malloc of glibc ask the kernel for huge pages. A process reads it when it starts."""
_ROOT = Path(__file__).parents[1]


def without_secrets(own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a child process may have: it handles hostile input, and needs no secret."""
    return {name: value for name, value in own.items() if name not in SECRETS and not name.startswith(PREFIX)}


def command_for(module: str) -> list[str]:
    """Return the command that runs `main()` of a module of this installation.

    `-P` keeps the current directory off the module path, where a folder named `engine` could shadow ours.
    """
    start = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from {module} import main; main()"
    return [sys.executable, "-P", "-c", start]
