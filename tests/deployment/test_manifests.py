"""The Kubernetes examples satisfy the schemas, and agree with the program that they run."""

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from promql_parser import parse

from engine import embedded_model
from gateway.cli import SettingsError, read_settings
from gateway.flags import PREFIX, flag_fields
from gateway.hub.arguments import read_arguments
from gateway.server.limits import ServerLimits
from gateway.settings import Settings
from tests.deployment.containerfile import entrypoint
from tests.deployment.manifests import (
    FOLDER,
    RENDERED,
    Manifest,
    check,
    documents,
    one,
    pods,
    rendered,
    server,
    whole_manifests,
)
from tests.deployment.picker import SCORERS
from tests.gateway.application import apis, app_of
from tests.gateway.asgi import get
from tests.gateway.fake_engine import FakeEngine
from tests.gateway.metrics.scraped import scrape

METRIC = re.compile(r"\b(?:vllm:|llama_gateway_)\w+")
PICKER_PLUGINS = {*SCORERS, "prefix-cache-scorer", "lora-affinity-scorer", "max-score-picker", "single-profile-handler"}
"""Plugins of llm-d's endpoint picker, by the constants in its source."""

MODEL_VARIABLE = f"{PREFIX}MODEL"

overlays = pytest.mark.parametrize("name", RENDERED)


def settings_of(container: Manifest) -> Settings:
    """Return the settings of the server with the image's command, the arguments and the variables of a container."""
    variables = {each["name"]: each.get("value", "a-secret") for each in container["env"]}
    if variables.get(MODEL_VARIABLE, "").startswith("/models/"):
        variables[MODEL_VARIABLE] = str(embedded_model())  # the volume is not here
    return read_settings([*entrypoint("cpu")[1:], *container.get("args", ())], variables)


def test_every_manifest_satisfies_the_schema_of_its_kind() -> None:
    for manifest in whole_manifests():
        check(manifest)


@overlays
def test_rendered_manifests_satisfy_the_schemas(name: str) -> None:
    for manifest in rendered(name):
        check(manifest)


@overlays
def test_the_server_accepts_its_flags_and_variables(name: str) -> None:
    container = server(rendered(name))
    settings = settings_of(container)
    names = {f"{PREFIX}{field.upper()}" for field in flag_fields()}
    assert {each["name"] for each in container["env"] if each["name"].startswith(PREFIX)} <= names
    assert (settings.host, settings.port, settings.open_path) == ("0.0.0.0", 8000, ("/metrics",))  # noqa: S104
    assert settings.api_key


@overlays
def test_the_probes_ask_routes_that_need_no_key(name: str) -> None:
    container = server(rendered(name))
    assert container["ports"] == [{"name": "http", "containerPort": settings_of(container).port}]
    routes = {endpoint.path for api in apis() for endpoint in api.endpoints}
    probes = {probe: container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe: (ask["path"], ask["port"]) for probe, ask in probes.items()} == {
        "startupProbe": ("/livez", "http"),
        "livenessProbe": ("/livez", "http"),
        "readinessProbe": ("/readyz", "http"),
    }
    assert {"/livez", "/readyz", "/metrics"} <= routes


@overlays
def test_a_pod_is_not_killed_before_its_requests_have_ended(name: str) -> None:
    pod = one(rendered(name), "Deployment")["spec"]["template"]["spec"]
    container = server(rendered(name))
    needed = container["lifecycle"]["preStop"]["sleep"]["seconds"] + settings_of(container).grace
    needed += ServerLimits().close_timeout
    assert needed < pod["terminationGracePeriodSeconds"] <= needed + 10


@overlays
def test_variables_of_services_do_not_reach_the_server(name: str) -> None:
    """Kubernetes would set LLAMA_GATEWAY_PORT for a service with the name of the program."""
    assert one(rendered(name), "Service")
    with pytest.raises(SettingsError, match="LLAMA_GATEWAY_PORT"):
        read_settings(["serve"], {"LLAMA_GATEWAY_PORT": "tcp://10.0.0.1:8000"})
    assert one(rendered(name), "Deployment")["spec"]["template"]["spec"]["enableServiceLinks"] is False


@overlays
def test_every_container_has_the_least_privileges(name: str) -> None:
    for pod in pods(rendered(name)):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]


@overlays
def test_every_selector_selects_the_pods(name: str) -> None:
    manifests = rendered(name)
    labels = one(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [one(manifests, "Service")["spec"]["selector"]]
    others = [each for each in manifests if "matchLabels" in each.get("spec", {}).get("selector", {})]
    selectors += [
        each["spec"]["selector"]["matchLabels"] for each in others if each["metadata"]["name"] == "llama-gateway"
    ]
    assert len(selectors) > 2
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert documents("proxies/headless_service.yaml")[0]["spec"]["selector"].items() <= labels.items()


def test_the_init_container_downloads_the_model_that_is_served() -> None:
    (pod,) = pods(rendered("overlays/cpu"))
    (pull,) = pod["initContainers"]
    (serving,) = pod["containers"]
    settings = settings_of(serving)
    assert read_arguments([*pull["command"][1:], *pull["args"]]).model == settings.model
    assert settings.offline
    assert pull["image"] == serving["image"]
    home = {"name": "HF_HOME", "value": "/models"}
    assert home in pull["env"]
    assert home in serving["env"]


def test_an_autoscaler_owns_the_replicas() -> None:
    assert "replicas" in one(rendered("base"), "Deployment")["spec"]
    for name, kind in (("overlays/cpu", "HorizontalPodAutoscaler"), ("overlays/cuda", "ScaledObject")):
        deployment = one(rendered(name), "Deployment")
        assert "replicas" not in deployment["spec"]
        assert one(rendered(name), kind)["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]


@pytest.mark.anyio
async def test_autoscalers_query_real_metrics() -> None:
    real = scrape((await get(app_of(FakeEngine()), "/metrics")).content).names
    triggers = documents("components/keda/scaledobject.yaml")[0]["spec"]["triggers"]
    rules = documents("components/hpa/prometheus_adapter.yaml")[0]["rules"]["custom"]
    queries = [trigger["metadata"]["query"] for trigger in triggers]
    queries += [adapter_query(rule) for rule in rules]
    for query in queries:
        parse(query)
        named = set(METRIC.findall(query))
        assert named
        assert named <= real
    metrics = documents("components/hpa/horizontalpodautoscaler.yaml")[0]["spec"]["metrics"]
    assert [metric["pods"]["metric"]["name"] for metric in metrics] == [rule["name"]["as"] for rule in rules]


def test_autoscaling_by_keda_counts_the_pods_of_its_namespace_alone() -> None:
    namespace = documents("overlays/cuda/kustomization.yaml")[0]["namespace"]
    for trigger in documents("components/keda/scaledobject.yaml")[0]["spec"]["triggers"]:
        selectors = re.findall(r"\{(.*?)\}", trigger["metadata"]["query"])
        assert selectors == [f'namespace="{namespace}",pod=~"llama-gateway-.*"']
        host = str(urlsplit(trigger["metadata"]["serverAddress"]).hostname)
        assert host.endswith(".svc")  # KEDA asks from a namespace of its own


def adapter_query(rule: dict[str, Any]) -> str:
    """Return the query that Prometheus' adapter makes of a rule."""
    series = rule["seriesQuery"].partition("{")[0]
    parse(rule["seriesQuery"])
    query = rule["metricsQuery"].replace("<<.Series>>", series).replace("<<.GroupBy>>", "pod")
    return str(query.replace("<<.LabelMatchers>>", 'pod="a"'))


def test_the_pool_the_monitor_and_the_route_reach_the_server() -> None:
    manifests = rendered("overlays/cuda")
    port = settings_of(server(manifests)).port
    pool = one(manifests, "InferencePool")["spec"]
    assert pool["targetPorts"] == [{"number": port}]
    picker = one(manifests, "Service", pool["endpointPickerRef"]["name"])["spec"]["ports"]
    assert [entry["port"] for entry in picker] == [pool["endpointPickerRef"]["port"]["number"]]
    (endpoint,) = one(manifests, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    (rule,) = one(manifests, "HTTPRoute")["spec"]["rules"]
    assert rule["backendRefs"][0]["name"] == one(manifests, "InferencePool")["metadata"]["name"]
    assert float(rule["timeouts"]["request"].removesuffix("s")) > settings_of(server(manifests)).request_timeout


def test_the_configuration_of_the_picker_names_its_plugins() -> None:
    path = FOLDER / "components" / "inference-pool" / "picker.yaml"
    config = yaml.safe_load(path.read_text())
    plugins = {plugin["type"] for plugin in config["plugins"]}
    assert plugins <= PICKER_PLUGINS
    (profile,) = config["schedulingProfiles"]
    assert {plugin["pluginRef"] for plugin in profile["plugins"]} == plugins - {"single-profile-handler"}
    (pod,) = (pod for pod in pods(rendered("overlays/cuda")) if pod["containers"][0]["name"] == "picker")
    assert f"--config-file=/etc/picker/{path.name}" in pod["containers"][0]["args"]
