"""Unix sockets: who may connect, who the clients are, and what becomes of the file."""

import errno
import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import IO

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from gateway.middleware.disconnect import arrivals_of
from gateway.server.hypercorn import requests
from gateway.server.limits import ServerLimits
from gateway.server.listen import ListenError, close, listen_all, url
from gateway.server.unix import UnixListener
from tests.gateway.server.apps import Probe, hello, scoped
from tests.gateway.server.sockets import Client, post, serving
from tests.gateway.server.test_hangups import everything_ends
from tests.gateway.server.tls.certificates import server_context
from tests.gateway.server.unix_client import UnixClient

pytestmark = pytest.mark.anyio


async def test_a_client_is_the_user_at_the_other_end(tmp_path: Path) -> None:
    scopes = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await hello(scope, receive, send)

    path = tmp_path / "gateway.sock"
    async with serving(scoped(app), listener=UnixListener(path), tls=server_context) as site:
        client = UnixClient(path)
        site.clients.append(client)
        client.write(post(b"over a file"))
        assert (await client.answer()).body == b"/ over a file"
    (scope,) = scopes
    assert (scope["client"], scope["server"]) == ((f"unix:{os.getuid()}", os.getpid()), None)
    assert scope["scheme"] == "http"


@pytest.mark.parametrize("leave", [Client.close, Client.half_close])
async def test_a_hang_up_cancels_the_request(leave: object, tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    probe = Probe()
    async with serving(scoped(probe), listener=UnixListener(path)) as site:
        client = UnixClient(path)
        site.clients.append(client)
        client.write(post())
        await probe.entered.wait()
        assert callable(leave)
        leave(client)
        await everything_ends(site, probe)
    assert probe.closing.reason == "client closed the connection"


@pytest.mark.parametrize("leave", [Client.close, Client.half_close])
async def test_a_hang_up_behind_an_unread_body_is_noticed(
    leave: Callable[[Client], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is not read further, because the application receives nothing until the hang-up."""
    monkeypatch.setattr(requests, "HANG_UP_LOOK", 0.01)
    path, gone = tmp_path / "gateway.sock", anyio.Event()

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        arrivals = arrivals_of(scope)
        assert arrivals is not None
        arrivals.on_disconnect(lambda _message: gone.set())
        await gone.wait()

    async with serving(app, ServerLimits(unread=1000), listener=UnixListener(path)) as site:
        client = UnixClient(path)
        site.clients.append(client)
        await client.send(post(b"x" * 30_000))
        await anyio.wait_all_tasks_blocked()
        leave(client)
        await site.server.count_falls_to(0)
    assert gone.is_set()


def test_only_the_user_of_the_server_may_connect(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    before = os.umask(0)
    os.umask(before)
    with UnixListener(path) as listener:
        assert path.stat().st_mode & 0o777 == 0o600
        assert url(listener, secure=True) == f"unix:{path}"
    assert os.umask(before) == before


def test_the_file_is_removed_with_its_socket_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    first = UnixListener(path)
    first.close()
    assert not path.exists()
    second = UnixListener(path)
    path.unlink()
    with UnixListener(path):
        second.close()
        assert path.exists()
    first.close()


def test_a_folder_that_refuses_the_removal_does_not_keep_the_socket_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    listener = UnixListener(tmp_path / "socket")
    with monkeypatch.context() as folder:
        folder.setattr(Path, "unlink", refuse)
        listener.close()
    assert listener.fileno() == -1
    UnixListener(tmp_path / "socket").close()


def test_the_file_of_a_dead_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with UnixListener(path):
        UnixClient(path).close()


def refusal(path: Path) -> str:
    with pytest.raises(ListenError) as caught:
        listen_all(None, path)
    return str(caught.value)


def test_the_file_of_a_living_server_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    with UnixListener(path) as living:
        assert refusal(path) == f"cannot listen on {path}: Address already in use"
        UnixClient(path).close()
        living.accept()[0].close()


def test_a_server_that_does_not_listen_yet_is_no_dead_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lock, listen = tmp_path / "gateway.sock", fcntl.flock, UnixListener.listen

    def lock_at_once(file: IO[bytes], how: int) -> None:
        lock(file, how | fcntl.LOCK_NB)

    def listen_while_another_starts(listener: UnixListener, backlog: int) -> None:
        with pytest.raises(BlockingIOError):
            UnixListener(path)
        listen(listener, backlog)

    monkeypatch.setattr(fcntl, "flock", lock_at_once)
    monkeypatch.setattr(UnixListener, "listen", listen_while_another_starts)
    with UnixListener(path) as living:
        UnixClient(path).close()
        living.accept()[0].close()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_has_waited_for_another_one_to_listen_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lock = tmp_path / "gateway.sock", fcntl.flock
    living = list[UnixListener]()

    def lock_after_another(file: IO[bytes], how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        living.append(UnixListener(path))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", lock_after_another)
    assert refusal(path) == f"cannot listen on {path}: Address already in use"
    UnixClient(path).close()
    living[0].close()
    assert list(tmp_path.iterdir()) == []


def test_a_living_server_whose_backlog_is_full_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen(0)
        waiting = UnixClient(path)
        assert refusal(path) == f"cannot listen on {path}: Address already in use"
        waiting.close()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("notes")
    for taken in (path, tmp_path):
        assert refusal(taken) == f"cannot listen on {taken}: it exists and is not a socket"
    assert path.read_text() == "notes"


def test_a_link_whose_target_does_not_exist_is_left_alone(tmp_path: Path) -> None:
    link = tmp_path / "gateway.sock"
    link.symlink_to(tmp_path / "missing")
    assert refusal(link) == f"cannot listen on {link}: it is a symbolic link to a file that does not exist"
    assert link.is_symlink()


def test_a_path_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "gateway.sock"
    assert refusal(missing) == f"cannot listen on {missing}: No such file or directory"
    assert refusal(tmp_path / ("x" * 200)).endswith(": AF_UNIX path too long")


def test_no_socket_stays_open_if_one_of_two_cannot_be_listened_on(tmp_path: Path) -> None:
    sockets = listen_all(("127.0.0.1", 0), None)
    port = sockets[0].getsockname()[1]
    with pytest.raises(ListenError, match=f"^cannot listen on 127.0.0.1 port {port}: Address already in use$"):
        listen_all(("127.0.0.1", port), tmp_path / "gateway.sock")
    assert not (tmp_path / "gateway.sock").exists()
    close(sockets)
    with pytest.raises(ListenError):
        listen_all(("127.0.0.1", port), tmp_path)
    socket.create_server(("127.0.0.1", port)).close()


async def test_an_event_loop_waits_for_clients_of_both(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    sockets = listen_all(("127.0.0.1", 0), path)
    assert [url(sock, secure=True).partition(":")[0] for sock in sockets] == ["https", "unix"]
    with anyio.fail_after(20):
        UnixClient(path).close()
        sockets[1].setblocking(False)
        await anyio.wait_readable(sockets[1])
    close(sockets)
