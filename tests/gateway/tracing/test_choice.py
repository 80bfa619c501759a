"""The choice whether spans are sent."""

import logging
from pathlib import Path

import pytest

from gateway.tracing import choice
from gateway.tracing.choice import Choice, TracesUnavailableError, check_traces, wants_traces
from tests.gateway.test_main import ended

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("flag", "environment", "wanted"),
    [
        ("auto", {}, False),
        ("auto", {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ("auto", ENDPOINT, True),
        ("auto", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ("auto", ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
        ("auto", ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"}, False),
        ("auto", ENDPOINT | {"OTEL_SDK_DISABLED": "1"}, True),
        ("auto", ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, False),
        ("on", {}, True),
        ("on", {"OTEL_SDK_DISABLED": "true"}, False),
        ("off", ENDPOINT, False),
    ],
)
def test_the_flag_and_the_environment_decide(flag: Choice, environment: dict[str, str], wanted: bool) -> None:
    check_traces(flag, environment)
    assert wants_traces(flag, environment) is wanted


def test_an_endpoint_without_the_extra_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(choice, "_PACKAGES", ("not_installed.sdk",))
    check_traces("auto", ENDPOINT)
    assert not wants_traces("auto", ENDPOINT)
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert 'pip install "llama-gateway[otel]"' in line.getMessage()


def test_asking_for_traces_without_the_extra_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_PACKAGES", ("not_installed.sdk",))
    with pytest.raises(TracesUnavailableError, match=r"--traces on: OpenTelemetry is not installed: pip install"):
        check_traces("on", {})
    check_traces("on", {"OTEL_SDK_DISABLED": "true"})


def test_traces_that_cannot_be_sent_are_one_line_and_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "any.gguf"
    model.write_bytes(b"GGUF" + bytes(60))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    reason = "llama-gateway: --traces on: the protocol 'grpc' is not supported, only http/protobuf"
    assert ended("--model", str(model), "--traces", "on") == (2, [reason])
