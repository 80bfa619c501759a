"""The ingress behind a proxy without the middleware of this project."""

import pytest
from starlette.types import Message, Receive, Scope, Send

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # within Ray
]


@pytest.mark.parametrize(("given", "added"), [([b"x" * 129], 0), ([b""], 0), ([], 1)])
async def test_a_response_has_no_id_beside_that_of_the_proxy(given: list[bytes], added: int) -> None:
    from gateway.cluster.ingress.deployment import BehindProxy  # noqa: PLC0415 - needs Ray

    sent: list[Message] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"x-request-id", b"req_1"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    scope = {"type": "http", "headers": [(b"x-request-id", value) for value in given]}
    await BehindProxy(app)(scope, receive, send)
    (message,) = sent
    assert [name for name, _ in message["headers"]] == [b"x-request-id"] * added + [b"content-length"]
