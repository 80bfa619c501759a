"""Listening sockets."""

import errno
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.server.listen import ListenError, close, is_local, listen, listen_all, reserve, url


def test_a_free_port_is_chosen_and_reported() -> None:
    sockets = listen("127.0.0.1", 0)
    (sock,) = sockets
    assert url(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"
    with socket.create_connection(sock.getsockname()):
        pass
    close(sockets)
    assert sock.fileno() == -1


def test_every_address_of_a_name_has_the_same_port() -> None:
    sockets = listen("localhost", 0)
    assert len({sock.getsockname()[1] for sock in sockets}) == 1
    close(sockets)


def test_several_addresses_have_the_same_port() -> None:
    sockets = listen_all(("127.0.0.1, ::1", 0), None)
    ports = {sock.getsockname()[1] for sock in sockets}
    close(sockets)
    assert (len(sockets), len(ports)) == (2, 1)


def test_an_address_that_two_names_have_is_listened_on_once() -> None:
    sockets = listen_all(("localhost, 127.0.0.1, localhost", 0), None)
    addresses = [sock.getsockname()[0] for sock in sockets]
    close(sockets)
    assert addresses.count("127.0.0.1") == 1
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_reserved_port_is_left_to_the_program_that_shares_it(host: str) -> None:
    reserved, *locks = reserve(host, 0)
    address = reserved.getsockname()[:2]
    with pytest.raises(OSError, match="in use"):
        listen(*address)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    with sharing(reserved), pytest.raises(ListenError, match="Address already in use"):
        reserve(*address)
    close([reserved, *locks])
    close(reserve(*address))  # also while the connections of the program that has ended are in TIME_WAIT


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the lock")
def test_a_port_is_reserved_only_once() -> None:
    """Otherwise two clusters that start at the same time would share it, and each get a part of the requests."""
    first = reserve("localhost", 0)
    port = first[0].getsockname()[1]
    with pytest.raises(ListenError, match=f"127.0.0.1 port {port}: Address already in use"):
        reserve("127.0.0.1", port)
    close(reserve("127.0.0.2", port))
    close(first)
    close(reserve("127.0.0.1", port))


@contextmanager
def sharing(reserved: socket.socket) -> Iterator[None]:
    """Listen on a reserved port, and have had one client."""
    address = reserved.getsockname()
    with socket.socket(reserved.family) as shared:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.bind(address)
        shared.listen()
        with socket.create_connection(address[:2]), shared.accept()[0]:
            pass
        yield


def test_a_port_that_another_program_has_cannot_be_reserved() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"127.0.0.1 port {port}: Address already in use"):
            reserve("127.0.0.1", port)


def test_an_ipv6_address_is_shown_in_brackets() -> None:
    class Fake:
        family = socket.AF_INET6

        def getsockname(self) -> tuple[str, int, int, int]:
            return "::1", 8000, 0, 0

    assert url(Fake()) == "http://[::1]:8000"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("family", "address", "local"),
    [
        (socket.AF_INET, ("127.0.0.1", 1), True),
        (socket.AF_INET, ("127.1.2.3", 1), True),
        (socket.AF_INET6, ("::1", 1, 0, 0), True),
        (socket.AF_UNIX, "/run/gateway.sock", True),
        (socket.AF_INET, ("0.0.0.0", 1), False),  # noqa: S104
        (socket.AF_INET, ("192.0.2.1", 1), False),
        (socket.AF_INET6, ("::", 1, 0, 0), False),
        (socket.AF_INET6, ("fe80::1%eth0", 1, 0, 2), False),
    ],
)
def test_only_a_loopback_address_or_a_file_is_local(family: socket.AddressFamily, address: object, local: bool) -> None:
    class Fake:
        def __init__(self) -> None:
            self.family = family

        def getsockname(self) -> object:
            return address

    assert is_local(Fake()) is local  # type: ignore[arg-type]


def test_a_port_in_use_is_an_error() -> None:
    sockets = listen("127.0.0.1", 0)
    with pytest.raises(OSError, match="Address already in use") as caught:
        listen("127.0.0.1", sockets[0].getsockname()[1])
    assert caught.value.errno == errno.EADDRINUSE
    close(sockets)


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(OSError, match="assign") as caught:
        listen("192.0.2.1", 0)
    assert caught.value.errno == errno.EADDRNOTAVAIL


@pytest.mark.skipif(not hasattr(socket, "TCP_DEFER_ACCEPT"), reason="only Linux keeps silent clients")
def test_a_client_is_not_accepted_before_its_first_bytes() -> None:
    (listener,) = listen("127.0.0.1", 0)
    listener.setblocking(False)
    with socket.create_connection(listener.getsockname()) as client:
        with pytest.raises(BlockingIOError):
            listener.accept()
        client.sendall(b"GET")
        listener.setblocking(True)
        listener.accept()[0].close()
    close([listener])


def found(*addresses: str) -> list[tuple[object, ...]]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]


def test_an_address_this_machine_lacks_is_left_out_if_another_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found("192.0.2.1", "127.0.0.1"))
    sockets = listen("both", 0)
    assert [sock.getsockname()[0] for sock in sockets] == ["127.0.0.1"]
    close(sockets)


def test_no_socket_stays_open_if_one_of_several_addresses_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = listen("127.0.0.1", 0)
    port = taken[0].getsockname()[1]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found("127.0.0.2", "127.0.0.1"))
    with pytest.raises(OSError, match="Address already in use"):
        listen("both", port)
    close(taken)
    socket.create_server(("127.0.0.2", port)).close()
