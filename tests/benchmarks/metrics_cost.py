"""The time that the metrics take: for each token, each request, and each scrape.

    python -m tests.benchmarks.metrics_cost [--streams 32] [--tokens 500]

Measured in this process alone, without sockets and without a model. For a token: the delivery of a step's frame with
and without the times of tokens and the counts of steps, and what the engine's scheduler counts. For a request: its
record and the observer of the metrics.
"""

import argparse
import time
from collections.abc import Callable

import anyio

from engine import GenerationRequest
from engine.client.exchange import Exchange
from engine.client.measurements.histogram import Histogram
from engine.client.measurements.tally import Tally
from engine.client.measurements.telemetry import Totals
from engine.events import FirstToken, Text
from engine.info import EngineMetrics
from engine.testing.fake_model import FakeModel
from gateway.metrics.engines import EngineCollector
from gateway.metrics.exposition import Exposition
from gateway.metrics.requests import RequestMetrics
from gateway.middleware.caller import Caller
from gateway.serving.recorder import Recorder
from gateway.serving.records import Operation
from tests.engine.driver import Driver
from tests.gateway.application import gateway_of
from tests.gateway.fake_engine import FakeEngine


def best(work: Callable[[], object], rounds: int = 7) -> float:
    """Return the shortest time of several rounds, in seconds."""

    def once() -> float:
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun

    return min(once() for _ in range(rounds))


def request() -> GenerationRequest:
    return GenerationRequest(id="r", prompts=("x",), stream=True)


async def deliver(streams: int, tokens: int) -> float:
    """Return the seconds that a token takes from its frame to its mailbox, with all that is measured."""
    exchange, totals = Exchange(streams), Totals()
    exchange.connect(lambda _message: None)
    mailboxes = [exchange.open(request(), patience=60) for _ in range(streams)]
    events = [(key + 1, Text(0, "a")) for key in range(streams)]
    exchange.deliver([(key, FirstToken()) for key, _ in events], 0.0)
    steps = iter(range(1, 10**9))

    def run() -> None:
        for _ in range(tokens):
            step = next(steps)
            totals.record(EngineMetrics(steps=step, rows_decoded=step * streams))
            exchange.deliver(events, 0.0)
            for mailbox in mailboxes:
                mailbox._drain()

    return best(run) / streams / tokens


def own_share(streams: int, tokens: int) -> float:
    """Return the seconds of it that the measurement takes: the times of tokens, and the counts of steps."""
    gaps, totals = Histogram((0.01, 0.1, 1.0, 10.0)), Totals()
    tallies = [Tally(request(), gaps) for _ in range(streams)]
    event, steps = Text(0, "a"), iter(range(1, 10**9))

    def run() -> None:
        for _ in range(tokens):
            step = next(steps)
            totals.record(EngineMetrics(steps=step, rows_decoded=step * streams))
            for tally in tallies:
                tally.time_text(event, step * 0.02)

    return best(run) / streams / tokens


def scheduler(streams: int, tokens: int) -> float:
    """Return the seconds of a token in the engine's scheduler and the fake model, with the counts of tokens."""
    driver = Driver(FakeModel(slots=streams, context=4 * tokens))

    def run() -> None:
        for _ in range(streams):
            driver.add("x", max_tokens=tokens, stream=True, speculative=False)
        driver.drain()

    return best(run, rounds=1) / streams / tokens


async def one_request() -> float:
    """Return the seconds of a request's record and its metrics."""
    metrics = RequestMetrics(["tiny"])
    recorder = Recorder("tiny", [metrics.observe])
    caller, number = Caller(request_id="r"), 2000

    def run() -> None:
        for _ in range(number):
            with recorder.generation(caller, request(), Operation.CHAT):
                pass

    return best(run) / number


def one_scrape() -> float:
    """Return the seconds of a scrape. The event loop does nothing else in this time."""

    models = gateway_of(FakeEngine()).models
    exposition = Exposition([RequestMetrics(["tiny"]), EngineCollector(models.all)])
    return best(lambda: exposition.page(""), rounds=50)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=500)
    args = parser.parse_args()
    print(f"from the frame to the mailbox: {await deliver(args.streams, args.tokens) * 1e6:.2f} µs a token")
    print(f"of it for the metrics: {own_share(args.streams, args.tokens) * 1e6:.2f} µs a token")
    print(f"scheduler and fake model: {scheduler(args.streams, args.tokens) * 1e6:.2f} µs a token")
    print(f"record and metrics: {await one_request() * 1e6:.1f} µs a request")
    print(f"scrape: {one_scrape() * 1e3:.2f} ms")


if __name__ == "__main__":
    anyio.run(main)
