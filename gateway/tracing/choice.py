"""Choice whether spans are sent, by the flag and by OpenTelemetry's environment variables."""

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal, TypeAlias

logger = logging.getLogger(__name__)

Choice: TypeAlias = Literal["auto", "on", "off"]
"""Value of the flag. `auto` sends spans if the environment names an endpoint."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"
_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


class TracesUnavailableError(Exception):
    """Traces were asked for, and cannot be sent. The text says why."""


def check_traces(choice: Choice, environment: Mapping[str, str]) -> None:
    """Check that the flag asks for what is possible.

    Raises:
        TracesUnavailableError: It does not.
    """
    if choice == "on" and not _is_switched_off(environment) and (obstacle := _obstacle(environment)):
        raise TracesUnavailableError(f"--traces on: {obstacle}")


def wants_traces(choice: Choice, environment: Mapping[str, str]) -> bool:
    """Return True if spans are to be sent. If there is an endpoint, a warning says why they are not."""
    if choice == "off" or _is_switched_off(environment):
        return False
    if choice == "auto" and not any(environment.get(name) for name in _ENDPOINTS):
        return False
    obstacle = _obstacle(environment)
    if obstacle:
        logger.warning("no traces are sent, although the environment names an endpoint: %s", obstacle)
    return not obstacle


def _is_switched_off(environment: Mapping[str, str]) -> bool:
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return disabled or environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"


def _obstacle(environment: Mapping[str, str]) -> str:
    """Return the reason for which no spans can be sent, or an empty text."""
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), _PROTOCOL)
    if protocol != _PROTOCOL:
        return f"the protocol {protocol!r} is not supported, only {_PROTOCOL}"
    return "" if _is_installed() else 'OpenTelemetry is not installed: pip install "llama-gateway[otel]"'


def _is_installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in _PACKAGES)
    except ModuleNotFoundError:  # a parent package is missing
        return False
