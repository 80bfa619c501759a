"""The transport: sends without waiting while the kernel's buffer has room, else within a time limit."""

import contextlib
import socket
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest

from gateway.server.transport import SENT_IN_TIME, StalledError, Transport
from tests.gateway.server.sockets import LEAVE, Client, listen

pytestmark = pytest.mark.anyio

Sockets = tuple[socket.socket, socket.socket]
MUCH = b"0123456789" * 100_000


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    ours, peer = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    peer.setblocking(False)
    with ours, peer:
        yield ours, peer


async def drain(peer: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        await anyio.wait_readable(peer)
        received += peer.recv(65536)
    return received


async def test_a_send_with_room_completes_at_once(sockets: Sockets) -> None:
    ours, peer = sockets
    transport = Transport(ours, 5)
    coroutine = transport.send(b"at once")
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert peer.recv(100) == b"at once"


async def test_a_busy_sender_lets_others_run(sockets: Sockets) -> None:
    ours, peer = sockets
    transport = Transport(ours, 5)
    others = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def other() -> None:
            others.set()

        tasks.start_soon(other)
        while not others.is_set():
            await transport.send(b"x")
            peer.recv(100)


async def test_bytes_stay_in_order_when_the_peer_is_slow(sockets: Sockets) -> None:
    ours, peer = sockets
    transport = Transport(ours, 5)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.send, MUCH)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(transport.send, b"second")
            await anyio.lowlevel.checkpoint()
            assert await drain(peer, len(MUCH) + 6) == MUCH + b"second"


@pytest.mark.parametrize("offered", [0, SENT_IN_TIME])
async def test_a_peer_that_goes_on_reading_has_time_for_a_large_send(sockets: Sockets, offered: int) -> None:
    """Also behind the bytes of another task, which sends what the kernel left of an event."""
    ours, peer = sockets
    now, timeout = 0.0, 0.001
    transport = Transport(ours, timeout, lambda: now)
    transport.offer(MUCH[:offered])
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.send, b"")
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(transport.send, MUCH[offered:])
            received = b""
            while len(received) < len(MUCH):
                received += await drain(peer, min(2 * SENT_IN_TIME, len(MUCH) - len(received)))
                now += 0.6 * timeout
    assert received == MUCH


async def test_a_cancelled_send_still_delivers_all_its_bytes(sockets: Sockets) -> None:
    ours, peer = sockets
    transport = Transport(ours, 5)
    with anyio.fail_after(20):
        with anyio.move_on_after(0) as cancelled:
            await transport.send(MUCH)
        assert cancelled.cancelled_caught
        first = await drain(peer, 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transport.send, b"second")
            assert first + await drain(peer, len(MUCH) + 6 - len(first)) == MUCH + b"second"


async def test_a_peer_that_does_not_read_is_given_up(sockets: Sockets) -> None:
    transport = Transport(sockets[0], 0.05)
    with anyio.fail_after(20), pytest.raises(StalledError):
        await transport.send(MUCH)


async def test_a_full_kernel_gets_the_bytes_of_an_offer_later(sockets: Sockets) -> None:
    ours, peer = sockets
    transport = Transport(ours, 5)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += ours.send(bytes(4096))
    transport.offer(b"later")
    assert transport.has_unsent
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(transport.send, b"")
        assert (await drain(peer, filled + 5)).endswith(b"\0later")
    assert not transport.has_unsent


async def test_finishing_with_unsent_bytes_is_a_reset(sockets: Sockets) -> None:
    transport = Transport(sockets[0], 0.05)
    with anyio.move_on_after(0):
        await transport.send(MUCH)
    transport.finish()
    assert transport.closed


async def test_closing_wakes_a_waiting_sender(sockets: Sockets) -> None:
    transport = Transport(sockets[0], 5)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                with pytest.raises(anyio.ClosedResourceError):
                    await transport.receive()

            tasks.start_soon(read)
            for data in (MUCH, b"behind it"):
                tasks.start_soon(transport.send, data)
            await anyio.wait_all_tasks_blocked()
            transport.close()
            transport.close()
        with pytest.raises(anyio.ClosedResourceError):
            await transport.receive()


async def test_bytes_may_be_gone_at_the_turn_of_their_reader(sockets: Sockets) -> None:
    ours, peer = sockets
    transport, taken = Transport(ours, 5), anyio.Event()

    async def take_the_first() -> None:
        if not taken.is_set():
            ours.recv(100)
            taken.set()

    async def read() -> None:
        assert await transport.receive(take_the_first) == b"second"

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            peer.send(b"first")
            await taken.wait()
            peer.send(b"second")


async def test_a_transport_may_be_closed_before_the_turn_of_its_reader(sockets: Sockets) -> None:
    transport = Transport(sockets[0], 5)

    async def close() -> None:
        transport.close()

    sockets[1].send(b"x")
    with anyio.fail_after(20), pytest.raises(anyio.ClosedResourceError):
        await transport.receive(close)


async def test_a_unix_socket_has_a_peer_and_no_address(sockets: Sockets) -> None:
    transport = Transport(sockets[0], 5)
    sockets[1].send(b"unread")
    assert (transport.peer_has_closed(), transport.prepare()) == (False, None)
    sockets[1].close()
    assert transport.peer_has_closed()


@pytest.mark.parametrize("leave", LEAVE)
async def test_the_peer_is_known_to_have_closed_behind_unread_bytes(leave: str) -> None:
    with listen() as listener:
        client = Client(listener.getsockname()[1])
        ours, _ = listener.accept()
        with ours:
            transport = Transport(ours, 5)
            client.write(b"unread")
            assert not transport.peer_has_closed()
            LEAVE[leave](client)
            with anyio.fail_after(20):
                while not transport.peer_has_closed():
                    await anyio.lowlevel.checkpoint()
        client.close()


async def test_a_broken_socket_has_no_address() -> None:
    with socket.socket() as sock:
        transport = Transport(sock, 5)
    assert transport.prepare() is None


async def test_a_sender_to_a_closed_socket_can_be_cancelled(sockets: Sockets) -> None:
    transport = Transport(sockets[0], 5)
    transport.abort()
    transport.finish()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await transport.send(b"nobody hears")
    assert scope.cancelled_caught
    await transport.send(b"x")
