"""Load generation by concurrent clients."""

from collections.abc import Callable, Iterator

import anyio

from gateway.bench.client import Client
from gateway.bench.connection import open_receiver
from gateway.bench.exchange import Exchange
from gateway.bench.outcome import Outcome
from gateway.bench.target import Target


async def run_clients(
    target: Target,
    requests: Iterator[bytes],
    *,
    clients: int,
    streamed: bool,
    answer_timeout: float,
    on_outcome: Callable[[Outcome], object],
) -> None:
    """Send all requests from concurrent clients. Each client sends the next request after its last answer.

    Args:
        target: the server under test.
        requests: taken from the iterator when they are sent.
        clients: number of concurrent clients.
        streamed: True if the requests ask for streams.
        answer_timeout: maximum time of an answer, in seconds.
        on_outcome: called with the outcome of each request; after a cancellation, not for requests in progress.
    """

    async def send_all(client: Client) -> None:
        with client:
            for request in requests:
                exchange = Exchange(streamed=streamed)
                on_outcome(exchange.outcome(await client.send(request, exchange)))

    async with open_receiver() as receiver, anyio.create_task_group() as tasks:
        for _ in range(clients):
            tasks.start_soon(send_all, Client(target, receiver, answer_timeout))
