"""A client that leaves frees what its replica held, whatever the request waited for, and a lost replica loses no more.

The replicas' own counters are the witnesses.
"""

import json
import os
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from ipaddress import IPv6Address
from typing import Any

import httpx
import psycopg
import pytest

from tests.cluster.cluster import GUARD, Cluster, eventually
from tests.cluster.conftest import LIMITED, MOST_REQUESTS, SETTINGS

pytestmark = pytest.mark.cluster

PATH = "/v1/completions"
LONG_PROMPT = "abc" * 4000
STREAMING = pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
ABORTED, WHOLE = "vllm:request_success_total abort", "vllm:request_success_total length"
GENERATED, RUNNING, WAITING = "vllm:generation_tokens_total", "vllm:num_requests_running", "vllm:num_requests_waiting"
KV = "vllm:kv_cache_usage_perc"
SHORT = 200
"""Tokens of a request that ends in a grace period."""
PLACES = 2 * (4 + 4)
"""Requests that the replicas take: those of the slots, and of the queues."""


def endless(**fields: object) -> dict[str, Any]:
    """Return the body of a request that decodes for many seconds."""
    return {"prompt": "Once", "max_tokens": 16_000, "ignore_eos": True, **fields}


def is_idle(cluster: Cluster) -> bool:
    return all(not figures[name] for figures in cluster.figures().values() for name in (KV, RUNNING, WAITING))


@pytest.fixture(autouse=True)
def _idle(cluster: Cluster) -> Iterator[None]:
    """Begin and end each test without requests, and with both replicas."""
    eventually(lambda: len(cluster.figures()) == SETTINGS["replicas"] and is_idle(cluster))
    yield
    eventually(lambda: is_idle(cluster))


@STREAMING
def test_a_disconnect_while_decoding_frees_the_cells(cluster: Cluster, stream: bool) -> None:
    generated, aborted, whole = (cluster.total(name) for name in (GENERATED, ABORTED, WHOLE))
    with cluster.send(PATH, endless(stream=stream)):
        eventually(lambda: cluster.total(GENERATED) > generated)
    eventually(lambda: is_idle(cluster))
    assert cluster.total(ABORTED) == aborted + 1
    assert cluster.total(WHOLE) == whole


@STREAMING
def test_a_disconnect_while_the_prompt_is_computed_frees_the_cells(cluster: Cluster, stream: bool) -> None:
    generated, aborted = cluster.total(GENERATED), cluster.total(ABORTED)
    prompt = f"{os.urandom(8).hex()} {LONG_PROMPT}"
    with (
        cluster.send(PATH, {"prompt": prompt, "max_tokens": 5, "stream": stream}) as connection,
        cluster.paused_when(lambda: cluster.total(KV) > 0),
    ):
        connection.close()
    eventually(lambda: is_idle(cluster))
    assert cluster.total(ABORTED) == aborted + 1
    assert cluster.total(GENERATED) == generated


@STREAMING
def test_a_disconnect_in_the_queue_of_a_replica_leaves_it(cluster: Cluster, stream: bool) -> None:
    with full(cluster, stream=stream) as connections:
        aborted = cluster.total(ABORTED)
        for connection in connections:
            connection.close()
            if cluster.total(WAITING) < 8:
                break
        eventually(lambda: cluster.total(ABORTED) > aborted)


@STREAMING
def test_a_disconnect_in_the_queue_of_the_cluster_reaches_no_replica(cluster: Cluster, stream: bool) -> None:
    aborted = cluster.total(ABORTED)
    with full(cluster, stream=stream):
        with ExitStack() as waiting:
            for _ in range(4):
                waiting.enter_context(cluster.send(PATH, endless(stream=stream)))
            eventually(lambda: cluster.waiting() == 4)
            status, _ = cluster.ask(PATH, endless())
            assert status == 429
        eventually(lambda: cluster.waiting() == 0)
    eventually(lambda: is_idle(cluster))
    assert cluster.total(ABORTED) == aborted + PLACES


@contextmanager
def full(cluster: Cluster, *, stream: bool) -> Iterator[list[socket.socket]]:
    """Fill all slots and queues of the replicas inside the context."""
    with ExitStack() as stack:
        connections = []
        for number in range(1, PLACES + 1):
            connections.append(stack.enter_context(cluster.send(PATH, endless(stream=stream))))
            eventually(lambda number=number: present(cluster) == number)
        assert (cluster.total(RUNNING), cluster.total(WAITING)) == (8, 8)
        yield connections


def present(cluster: Cluster) -> float:
    """Return the number of requests that the replicas have."""
    return cluster.total(RUNNING) + cluster.total(WAITING)


def test_a_killed_replica_loses_only_what_it_has_shown(
    cluster: Cluster, store: str | None, keys: Mapping[str, str]
) -> None:
    """Its key may have just as many requests at once as there are, so that none of them may count twice."""
    answers: list[tuple[int, bytes]] = []
    short, key = endless(max_tokens=50), keys[LIMITED]
    askers = [threading.Thread(target=lambda: answers.append(cluster.ask(PATH, short, key))) for _ in range(2)]
    with ExitStack() as stack:
        streams = {stack.enter_context(shown_stream(cluster, key)): b"" for _ in range(6)}
        for number in (7, 8):
            stack.enter_context(cluster.send(PATH, endless(), key))
            eventually(lambda number=number: cluster.total(RUNNING) == number)
        for number, asker in enumerate(askers, 1):  # all slots are taken
            asker.start()
            eventually(lambda number=number: cluster.total(WAITING) == number)

        cluster.kill_replica()

        eventually(lambda: present(cluster) == MOST_REQUESTS - len(ends_of(streams)))
        ends = ends_of(streams)
    for asker in askers:
        asker.join()
    assert store is None or used(store)["finished"] == (2, 100)
    assert 2 <= len(ends) <= 4  # one replica has had four slots, two of which may not have streamed
    assert all(b'"code":"engine_died"' in end and b"[DONE]" not in end for end in ends)
    assert [status for status, _ in answers] == [200, 200]
    assert {json.loads(answer)["usage"]["completion_tokens"] for _, answer in answers} == {50}
    if store is not None:
        eventually(lambda: sum(requests for requests, _ in used(store).values()) == MOST_REQUESTS - len(ends))


def used(store: str) -> dict[str, tuple[int, int]]:
    """Return the number of the limited key's requests and of their generated tokens, by outcome."""
    rows = "SELECT outcome, count(*), sum(completion_tokens) FROM usage WHERE key_id = %s GROUP BY outcome"
    with psycopg.connect(store) as connection:
        return {outcome: (number, int(tokens)) for outcome, number, tokens in connection.execute(rows, (LIMITED,))}


def shown_stream(cluster: Cluster, key: str | None = None, **fields: object) -> socket.socket:
    """Return the connection of a stream whose first event has come."""
    stream = cluster.send(PATH, endless(stream=True, **fields), key)
    while b"data: {" not in stream.recv(65_536):
        pass
    return stream


def ends_of(streams: dict[socket.socket, bytes]) -> list[bytes]:
    """Read what has come, and return the last bytes of the streams that have ended."""
    for stream in select.select(list(streams), [], [], 0)[0]:
        streams[stream] = (streams[stream] + stream.recv(2**20))[-1500:]
    return [end for end in streams.values() if end.endswith(b"0\r\n\r\n")]


def test_the_requests_of_a_killed_ingress_free_their_cells(cluster: Cluster) -> None:
    aborted = cluster.total(ABORTED)
    with shown_stream(cluster), cluster.send(PATH, endless()) as whole:
        eventually(lambda: cluster.total(RUNNING) == 2)
        cluster.kill_ingress()
        answer = whole.recv(65_536)
        eventually(lambda: is_idle(cluster))
    assert cluster.total(ABORTED) == aborted + 2
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"code":"engine_died"' in answer


def test_an_update_and_a_scale_down_lose_no_request(cluster: Cluster) -> None:
    answers: list[tuple[int, bytes]] = []
    stop = threading.Event()

    def ask(number: int) -> None:
        while not stop.is_set():
            body = {"prompt": "Once", "max_tokens": 50, "ignore_eos": True, "stream": bool(number % 2)}
            answers.append(cluster.ask(PATH, body))

    askers = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for asker in askers:
        asker.start()
    changed = SETTINGS | {"max-tokens": 16_000}
    try:
        before = set(cluster.figures())
        cluster.update(**changed)
        updated = set(cluster.figures())
        during = len(answers)
        cluster.update(**changed | {"replicas": 1})
        eventually(lambda: len(cluster.figures()) == 1)
        eventually(lambda: len(answers) > during + 20)
    finally:
        stop.set()
        for asker in askers:
            asker.join()
        cluster.update(**changed)
    assert not before & updated
    assert [(status, answer) for status, answer in answers if status != 200] == []
    assert all(b"[DONE]" in answer or b'"finish_reason":"length"' in answer for _, answer in answers)


@pytest.mark.parametrize("given", ["mine", "", "x" * 129, "é", "é".encode("latin-1")], ids=ascii)
def test_a_response_has_one_valid_request_id_which_the_log_has_too(cluster: Cluster, given: str | bytes) -> None:
    headers = {
        b"authorization": f"Bearer {cluster.key}".encode(),
        b"x-request-id": given.encode() if isinstance(given, str) else given,
    }
    response = httpx.get(f"http://127.0.0.1:{cluster.port}/v1/models", headers=headers, timeout=GUARD)
    assert response.status_code == 200
    (request_id,) = response.headers.get_list("x-request-id")
    assert request_id == given if given == "mine" else request_id.startswith("req_")
    eventually(lambda: f"request_id={request_id}" in cluster.log.read_text())


def test_a_websocket_is_refused(cluster: Cluster) -> None:
    upgrade = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13"}
    key = {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
    response = httpx.get(f"http://127.0.0.1:{cluster.port}{PATH}", headers=upgrade | key, timeout=GUARD)
    assert response.status_code == 403


def test_its_ports_are_of_this_machine_alone_but_for_one_of_each_replica(cluster: Cluster) -> None:
    def holds() -> bool:
        replicas = len(cluster.figures()) + 1  # and the ingress: each has a port that needs Ray's token
        return [one for one in cluster.listening() if not one.is_loopback] == [IPv6Address("::")] * replicas

    eventually(holds)  # replicas that an update has replaced may still end


def test_its_processes_have_the_priority_of_other_programs(cluster: Cluster) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in cluster.processes()} == {own}


def test_a_stop_waits_for_the_open_requests_as_long_as_the_grace_period(cluster: Cluster) -> None:
    answers: dict[int, tuple[int, Any]] = {}

    def ask(tokens: int) -> None:
        status, answer = cluster.ask(PATH, endless(max_tokens=tokens))
        answers[tokens] = status, json.loads(answer)

    short, long = (threading.Thread(target=ask, args=(tokens,)) for tokens in (SHORT, 16_000))
    with shown_stream(cluster) as stream:
        streams = {stream: b""}
        long.start()
        eventually(lambda: cluster.total(RUNNING) == 2)
        short.start()
        eventually(lambda: cluster.total(RUNNING) == 3 or not short.is_alive())  # metrics can be slower than tokens
        try:
            cluster.stop()
            status, _ = cluster.ask("/health")
            short.join()
            long.join()
            (end,) = eventually(lambda: ends_of(streams))
        finally:
            cluster.update(**SETTINGS)
    assert status == 404  # of the proxy
    assert b'"code":"engine_died"' in end
    assert (answers[SHORT][0], answers[SHORT][1]["usage"]["completion_tokens"]) == (200, SHORT)
    assert (answers[16_000][0], answers[16_000][1]["error"]["code"]) == (503, "no_replica")
