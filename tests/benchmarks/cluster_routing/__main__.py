"""Choice of the replica on a real cluster of Ray on this machine: prompt tokens computed, and times to the first token.

    python -m tests.benchmarks.cluster_routing [--replicas 2] [--conversations 24] [--model FILE.gguf] [--policies A,B]

Each policy begins with new replicas, which hold nothing, of one thread and four slots. All get the same conversations.
The replicas' own counters say what was computed. Needs Ray.
"""

import argparse
import re
import socket
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from ray import serve

from gateway.cli import read_settings
from gateway.cluster.ingress.affinity import PERIOD
from gateway.cluster.local import APPLICATION, OBJECT_STORE
from tests.benchmarks.cluster_routing.application import POLICIES, PREFIXES, application_of
from tests.benchmarks.cluster_routing.load import Load
from tests.random_model import Shape, write_random_model

SHAPE = Shape(layers=6, width=384, heads=6, ffn=1024, context=4096)
"""Shape of the default model: 11 million weights, so that a prompt takes longer than the way to it."""
SLOTS = 4
LOCAL = "127.0.0.1"
PROMPTS, CACHED = "vllm:prompt_tokens_total", "vllm:prompt_tokens_cached_total"


def main() -> None:
    """Measure all policies, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--conversations", type=int, default=24)
    parser.add_argument("--clients", type=int, help="by default three for each replica")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--prefix-store", type=int, default=2**26, help="bytes of host memory of each replica")
    parser.add_argument("--policies", default=",".join((*POLICIES, PREFIXES)))
    given = parser.parse_args()
    load = Load(conversations=given.conversations, clients=given.clients or 3 * given.replicas)
    with model_of(given.model) as model, running_ray() as port:
        flags = {
            "model": model,
            "replicas": given.replicas,
            "slots": SLOTS,
            "context": SHAPE.context,
            "threads": 1,
            "prefix-store": given.prefix_store,
            "speculation": "off",
            "access-log": "off",
        }
        command = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
        settings = read_settings(["serve", *command], {})
        print(
            f"| {given.replicas} replicas | computed | of | requests | TTFT p50, ms | p99, ms | seconds |", flush=True
        )
        print("|---|---|---|---|---|---|---|", flush=True)
        for policy in given.policies.split(","):
            serve.run(application_of(settings, policy), name=APPLICATION, route_prefix="/")
            await_replicas(port, given.replicas)
            print_row(policy, *measure(load, port))
            serve.delete(APPLICATION)


def print_row(*cells: str) -> None:
    """Print a line of a table."""
    print(f"| {' | '.join(cells)} |", flush=True)


def measure(load: Load, port: int) -> Iterator[str]:
    """Yield the cells of a policy."""
    begun = time.perf_counter()
    times = load.run(port)
    seconds = time.perf_counter() - begun
    page = metrics(port)
    prompts, cached = (sum(values(page, name)) for name in (PROMPTS, CACHED))
    yield f"{prompts - cached:.0f} ({(prompts - cached) / prompts:.0%})"
    yield f"{prompts:.0f}"
    yield str(len(times))
    yield from (f"{1000 * times[int(share * (len(times) - 1))]:.0f}" for share in (0.5, 0.99))
    yield f"{seconds:.0f}"


def metrics(port: int) -> str:
    """Return the metrics of all replicas."""
    with urllib.request.urlopen(f"http://{LOCAL}:{port}/metrics", timeout=60) as page:
        text: str = page.read().decode()
        return text


def values(page: str, name: str) -> list[float]:
    """Return the values of a metric, of all replicas."""
    return [float(value) for value in re.findall(rf"^{name}\{{.*\}} (\S+)$", page, re.MULTILINE)]


def await_replicas(port: int, replicas: int) -> None:
    """Wait until the ingress knows all replicas, and asks them for what they hold, if it does."""
    while len(values(metrics(port), PROMPTS)) < replicas:
        time.sleep(0.1)
    time.sleep(2 * PERIOD)


@contextmanager
def model_of(path: Path | None) -> Iterator[Path]:
    """Yield a model file: a given one, or a random one."""
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        random = Path(folder) / "random.gguf"
        write_random_model(random, SHAPE)
        yield random


@contextmanager
def running_ray() -> Iterator[int]:
    """Run Ray and its proxy, and yield the proxy's port."""
    with socket.socket() as free:
        free.bind((LOCAL, 0))
        port: int = free.getsockname()[1]
    ray.init(
        address="local", num_cpus=16, include_dashboard=False, object_store_memory=OBJECT_STORE, log_to_driver=False
    )
    try:
        serve.start(proxy_location="HeadOnly", http_options={"host": LOCAL, "port": port})
        yield port
        serve.shutdown()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
