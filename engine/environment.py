"""Environment of child processes, without the secrets of this program."""

from collections.abc import Mapping

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


def without_secrets(own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a child process may have: it handles hostile input, and needs no secret."""
    return {name: value for name, value in own.items() if name not in SECRETS and not name.startswith(PREFIX)}
