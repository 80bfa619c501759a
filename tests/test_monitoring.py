"""The dashboard, the alert rules and the configuration in the examples parse, and name real metrics and labels."""

import json
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from promql_parser import parse

from gateway.serving.records import Outcome
from gateway.settings import Settings
from tests.gateway.application import app_of
from tests.gateway.asgi import get
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.metrics.scraped import scrape
from tests.reference import ROOT

pytestmark = pytest.mark.anyio

FOLDER = ROOT / "examples" / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana_dashboard.json").read_text())
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
CONFIG = (FOLDER / "llm_d_engine_config.yaml").read_text()
NAME = re.compile(r"\b(?:vllm:|llama_gateway_|http_requests)\w+")
TARGET_LABELS = {"job", "instance"}
"""Labels that Prometheus adds."""


def dashboard_queries() -> Iterator[str]:
    """Return the queries with values for Grafana's variables."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "1m").replace("$job", ".*").replace("$model_name", ".*")


def variables() -> Iterator[str]:
    """Return the metrics from which Grafana reads the values of its variables."""
    yield from (variable["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query")


QUERIES = [*dashboard_queries(), *(rule["expr"] for rule in RULES)]


@pytest.fixture
async def known() -> tuple[set[str], set[str]]:
    """Names and labels of a server before its first request."""
    found = scrape((await get(app_of(FakeEngine()), "/metrics")).content)
    labels = {name for family in found.families for sample in family.samples for name in sample.labels}
    return found.names, labels


def refusal(query: str) -> str:
    """Return why Prometheus would refuse a query, or an empty string."""
    try:
        parse(query)
    except ValueError as error:
        return str(error)
    return ""


def strangers(query: str, labels: AbstractSet[str]) -> AbstractSet[str]:
    """Return the labels and outcomes of a query that do not exist."""
    matched = set(re.findall(r"(\w+)=~?\"", query))
    grouped = {name for names in re.findall(r"\b(?:by|on) \(([^)]*)\)", query) for name in names.split(", ")}
    outcomes = set(re.findall(r'outcome="(\w+)"', query))
    return (matched | grouped) - labels | (outcomes - {outcome.value for outcome in Outcome})


async def test_every_query_parses_and_names_real_metrics(known: tuple[set[str], set[str]]) -> None:
    assert {query: reason for query in QUERIES if (reason := refusal(query))} == {}
    named = {query: set(NAME.findall(query)) for query in QUERIES}
    assert [query for query, names in named.items() if not names] == []
    assert {query: unknown for query, names in named.items() if (unknown := names - known[0])} == {}


async def test_every_query_has_labels_that_exist(known: tuple[set[str], set[str]]) -> None:
    of_counters = {"phase", "cause", "code", "reason"}  # shown with the first request that has them
    labels = known[1] | of_counters | TARGET_LABELS
    assert {query: unknown for query in QUERIES if (unknown := strangers(query, labels))} == {}


def test_every_alert_is_a_complete_rule() -> None:
    for rule in RULES:
        assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert re.fullmatch(r"[A-Za-z]\w*", rule["alert"])
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"]
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_no_alert_is_for_a_model_that_no_request_needs() -> None:
    (alert,) = (rule for rule in RULES if "llama_gateway_engine_ready == 0" in rule["expr"])
    assert "llama_gateway_engine_ready == 0 unless llama_gateway_engine_unloaded == 1" in alert["expr"]


def test_every_panel_can_be_drawn() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    drawn = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert all(panel["targets"] and panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in drawn)


async def test_variables_and_the_endpoint_picker_name_real_metrics(known: tuple[set[str], set[str]]) -> None:
    names = {name for text in (*variables(), CONFIG) for name in NAME.findall(text)}
    assert names <= known[0]


def test_the_collector_receives_where_the_server_sends_and_scrapes_where_it_listens() -> None:
    config = yaml.safe_load((FOLDER / "otel_collector.yaml").read_text())
    _, _, port = config["receivers"]["otlp"]["protocols"]["http"]["endpoint"].rpartition(":")
    assert urlsplit(trace_exporter.DEFAULT_ENDPOINT).port == int(port)
    (job,) = config["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"127.0.0.1:{Settings.model_fields['port'].default}"]
    assert job["metrics_path"] == "/metrics"
    for pipeline in config["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= config[kind].keys()
