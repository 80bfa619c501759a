"""Requests go to the replica that holds their prompt, until it is busier than the others or has lost it.

The replicas' own counters are the witnesses.
"""

import json
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, eventually
from tests.cluster.conftest import SETTINGS

pytestmark = pytest.mark.cluster

PATH = "/v1/completions"
PROMPT, CACHED = "vllm:prompt_tokens_total", "vllm:prompt_tokens_cached_total"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
KNOWN = "llama_gateway_routed_blocks"


@pytest.fixture(autouse=True)
def _idle(cluster: Cluster) -> Iterator[None]:
    """Begin and end each test without requests, with both replicas, of which the ingress knows."""
    eventually(lambda: [KNOWN in figures for figures in cluster.figures().values()] == [True] * 2)
    yield
    eventually(lambda: not cluster.total(RUNNING) + cluster.total(WAITING))


def conversation() -> str:
    """Return the beginning of a conversation that no replica holds."""
    return f"{uuid.uuid4()} Once upon a time there was a little girl. " * 8


def ask(cluster: Cluster, prompt: str) -> str:
    """Return the answer to a prompt."""
    status, answer = cluster.ask(PATH, {"prompt": prompt, "max_tokens": 4})
    assert status == 200, answer
    text: str = json.loads(answer)["choices"][0]["text"]
    return text


def holder(cluster: Cluster, prompt: str) -> str:
    """Return the replica that has computed the prompt."""
    before = {replica: figures[PROMPT] for replica, figures in cluster.figures().items()}
    ask(cluster, prompt)
    (replica,) = (one for one, figures in cluster.figures().items() if figures[PROMPT] > before[one])
    return replica


def computed(cluster: Cluster) -> float:
    return cluster.total(PROMPT) - cluster.total(CACHED)


def engines(cluster: Cluster) -> list[int]:
    """Return the processes of the engines."""
    children = (file for pid in cluster.replica_processes() for file in Path(f"/proc/{pid}/task").glob("*/children"))
    found = [int(child) for file in children for child in file.read_text().split()]
    return [pid for pid in found if b"engine.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_the_next_turn_computes_only_what_is_new(cluster: Cluster) -> None:
    prompts = [conversation() for _ in range(6)]
    first = computed(cluster)
    prompts = [prompt + ask(cluster, prompt) for prompt in prompts]
    second = computed(cluster)
    for prompt in prompts:
        ask(cluster, prompt + " And then?")
    assert computed(cluster) - second < (second - first) / 10


def test_the_next_turn_of_a_stored_conversation_computes_only_what_is_new(cluster: Cluster, store: str | None) -> None:
    if store is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    texts = [conversation() for _ in range(6)]
    first = computed(cluster)
    stored = [respond(cluster, input=text) for text in texts]
    second = computed(cluster)
    for response in stored:
        respond(cluster, input="And then?", previous_response_id=response)
    assert computed(cluster) - second < (second - first) / 4


def respond(cluster: Cluster, **fields: str) -> str:
    """Return the id of a new stored response."""
    status, answer = cluster.ask("/v1/responses", {"max_output_tokens": 4, **fields})
    assert status == 200, answer
    response_id: str = json.loads(answer)["id"]
    return response_id


def test_a_replica_that_is_much_busier_is_left(cluster: Cluster) -> None:
    prompt = conversation()
    replica = holder(cluster, prompt)
    with ExitStack() as stack:
        for number in range(1, 5):
            body = {"prompt": prompt, "max_tokens": 15_000, "ignore_eos": True, "stream": True}
            stack.enter_context(cluster.send(PATH, body))
            eventually(lambda number=number: cluster.figures()[replica][RUNNING] == number)
        (other,) = cluster.figures().keys() - {replica}
        before = cluster.figures()[other][PROMPT]
        ask(cluster, prompt)
        assert cluster.figures()[other][PROMPT] > before


def test_what_a_replica_has_lost_is_forgotten(cluster: Cluster) -> None:
    replica = holder(cluster, conversation())
    eventually(lambda: cluster.figures()[replica][KNOWN])
    processes = engines(cluster)
    assert len(processes) == SETTINGS["replicas"]
    for process in processes:
        os.kill(process, signal.SIGKILL)
    eventually(lambda: not cluster.total(KNOWN))
