"""A queue longer than any fixed number of connections: a full queue is reported, and the server stays reachable."""

import orjson
import pytest

from gateway.server.capacity import allow
from tests.gateway.server.sockets import get
from tests.system.served import by, completion, serving

pytestmark = pytest.mark.anyio

QUEUE = 520


async def test_a_full_queue_is_429_and_health_answers_however_long_it_is() -> None:
    allow(3 * QUEUE)  # both ends of each connection are files of this process
    async with serving(seconds_per_pass=1000.0, slots=1, queue_limit=QUEUE, grace=0.0) as served:
        clients = [served.client() for _ in range(QUEUE + 1)]
        try:
            for number, client in enumerate(clients):
                await client.send(by(f"client-{number}", completion(f"waits-{number}", max_tokens=5)))
            await served.until(lambda _, f: f.waiting == QUEUE)
            refused = await served.answer(completion("refused", max_tokens=5))
            assert refused.status == 429
            assert orjson.loads(refused.body)["error"]["code"] == "queue_full"
            assert (await served.answer(get("/health"))).status == 200
            slots = orjson.loads((await served.answer(get("/slots"))).body)
            assert slots
        finally:
            for client in clients:
                client.close()
        await served.connections_fall_to(0)
