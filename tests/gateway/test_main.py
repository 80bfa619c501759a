"""The program from outside: its output and exit codes."""

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from gateway import __version__
from gateway.keys.ring import KeyRing
from gateway.program import log_choices, warn_of_strangers
from gateway.server.listen import Listening
from tests.backends import TRIO_FIRST
from tests.containers import container
from tests.gateway.application import settings_for
from tests.gateway.server.tls.certificates import client_context, files_in
from tests.models import model_path
from tests.program import GUARD, ROOT, engines_of, log_until, program, program_of_users, said
from tests.repeat import first

SIGNALLED_AT_IMPORT = """
import signal, sys

number = signal.Signals[sys.argv.pop(1)]
signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

class Signal:
    def find_spec(self, name, *_):
        if name == "gateway.program":
            signal.raise_signal(number)

sys.meta_path.insert(0, Signal())
from gateway.__main__ import main
sys.exit(main())
"""
"""Program that receives a signal, its first argument, while it imports its modules.

It does not ignore the signal, as programs do that a script starts in the background.
"""


def signalled_at_import(number: signal.Signals, *arguments: str, within: Sequence[str] = ()) -> tuple[int, str]:
    """Return the exit code and the errors of the program, which may run within another one."""
    command = [*within, sys.executable, "-c", SIGNALLED_AT_IMPORT, number.name, *arguments]
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    return run.returncode, run.stderr


def ended(*arguments: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines of a program that ends by itself."""
    with program(*arguments) as process:
        _, text = process.communicate(timeout=60)
        return process.returncode, text.splitlines()


def test_the_installed_command_is_this_program() -> None:
    command = Path(sys.executable).with_name("llama-gateway")
    if not command.exists():
        pytest.skip("the package is not installed beside this Python")
    run = subprocess.run([command, "--version"], capture_output=True, text=True, check=False, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"llama-gateway {__version__}\n", "")


def test_the_standard_streams_may_be_closed() -> None:
    wrong = [sys.executable, "-m", "gateway", "serve", "--slots", "many"]
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *wrong]
    assert subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode == 2


def test_a_wrong_flag_is_one_line_and_2() -> None:
    with program_of_users("--slots", "many") as process:
        _, text = process.communicate(timeout=60)
    reason = "should be a whole number"
    assert (process.returncode, text) == (2, f"llama-gateway: --slots 'many': {reason}\n")


NO_DATABASE = "Not a database, but long enough to be read as the head of one." * 20


@pytest.mark.parametrize(
    ("flag", "content", "reason"),
    [
        ("--model", "Not a model.", "--model {path!r}: this is not a GGUF file"),
        ("--usage", NO_DATABASE, "--usage: the store cannot be used: file is not a database"),
        ("--keys", NO_DATABASE, "--keys: the store cannot be used: file is not a database"),
        ("--tls-certificate", None, "--tls-certificate {path!r}: No such file or directory"),
    ],
)
def test_a_file_of_no_use_is_one_line_and_2(flag: str, content: str | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    assert ended(flag, str(path)) == (2, [f"llama-gateway: {reason.format(path=str(path))}"])


def test_a_file_of_a_folder_that_is_no_model_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("Not a model.")
    shutil.copy(model_path(), tmp_path / "good.gguf")
    with program("--models-dir", str(tmp_path)) as process:
        said(process, f"WARNING gateway not served: --models-dir {str(path)!r}: this is not a GGUF file")
        assert said(process, "listening on ").endswith(", serving good on demand\n")


def test_replicas_without_a_cluster_are_one_line_and_2() -> None:
    assert ended("--replicas", "2") == (2, ["llama-gateway: --replicas and --max-replicas need --ray"])


def test_cpus_that_this_machine_lacks_are_one_line_and_2() -> None:
    code, (line,) = ended("--cpus", "4095")
    assert code == 2
    assert line.startswith("llama-gateway: --cpus: this process may not use 4095, only ")


def test_a_port_that_is_taken_is_one_line_and_4(tmp_path: Path) -> None:
    path = tmp_path / "any.gguf"
    path.write_bytes(b"GGUF" + bytes(60))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, lines = ended("--model", str(path), "--port", str(port))
    reason = f"llama-gateway: cannot listen on 127.0.0.1 port {port}: Address already in use"
    assert (code, lines) == (4, [reason])


def test_no_unix_socket_stays_of_a_server_that_does_not_start(tmp_path: Path) -> None:
    unix, store = tmp_path / "gateway.sock", tmp_path / "notes.db"
    store.write_text(NO_DATABASE)
    assert (ended("--unix-socket", str(unix), "--usage", str(store))[0], unix.exists()) == (2, False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _ = ended("--unix-socket", str(unix), "--metrics-port", str(taken.getsockname()[1]))
    assert (code, unix.exists()) == (4, False)


@pytest.mark.parametrize("backend", TRIO_FIRST)
def test_a_usage_store_that_cannot_be_read_is_one_line_and_2(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "usage.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE usage (at DOUBLE PRECISION)")  # of another program
    code, lines = ended("--usage", str(path), "--async-backend", backend, "--log-level", "error")
    assert (code, lines) == (2, ["llama-gateway: --usage: the store cannot be used: no such column: key_id"])


@pytest.mark.parametrize("backend", TRIO_FIRST)
def test_a_model_that_does_not_load_exits_with_3(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(model_path().read_bytes()[:100_000])
    code, lines = ended("--model", str(path), "--async-backend", backend)
    assert code == 3
    assert sum("ERROR gateway cannot serve cut: " in line for line in lines) == 1
    assert not any("Traceback" in line or "listening" in line for line in lines)


@pytest.mark.parametrize("backend", TRIO_FIRST)
@pytest.mark.parametrize("stop", first(1, [signal.SIGINT, signal.SIGTERM]))
def test_a_signal_stops_it_cleanly(backend: str, stop: signal.Signals) -> None:
    with program_of_users("--model", str(model_path()), "--async-backend", backend, "--slots", "2") as process:
        line = said(process, "listening on http://127.0.0.1:")
        assert f"serving {model_path().stem} (" in line
        assert "2 slots of " in line
        process.send_signal(stop)
        _, rest = process.communicate(timeout=30)
        assert process.returncode == 0
        assert f"{stop.name}: stopping" in rest
        assert "Traceback" not in rest


def test_ctrl_c_during_its_imports_ends_it_without_a_traceback() -> None:
    assert signalled_at_import(signal.SIGINT, "serve", "--port", "0") == (-signal.SIGINT, "")


def test_a_hang_up_during_its_imports_has_no_effect() -> None:
    code, text = signalled_at_import(signal.SIGHUP, "serve", "--slots", "many")
    assert (code, text) == (2, "llama-gateway: --slots 'many': should be a whole number\n")


@pytest.mark.parametrize("arguments", [["serve", "--slots", "many"], ["pull", "none"]])
def test_the_first_process_of_a_container_is_ended_during_its_imports(arguments: list[str]) -> None:
    code, text = signalled_at_import(signal.SIGTERM, *arguments, within=container())
    assert (code, text) == (128 + signal.SIGTERM, "")


def test_it_says_before_it_listens_that_answers_have_no_limit() -> None:
    with program("--model", str(model_path())) as process:
        said(process, "--max-tokens sets one for all")
        said(process, "listening on http://127.0.0.1:")


class FakeSocket:
    """A socket that listens on an address and port 1."""

    family = socket.AF_INET

    def __init__(self, address: str) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address, 1


@pytest.mark.parametrize(
    ("addresses", "keys", "warned"),
    [
        (["127.0.0.1", "192.0.2.1", "192.0.2.2"], None, "http://192.0.2.1:1 and http://192.0.2.2:1"),
        (["192.0.2.1"], KeyRing(["sk-1"]), None),
        (["127.0.0.1"], None, None),
    ],
)
def test_one_line_warns_that_strangers_may_use_the_server(
    caplog: pytest.LogCaptureFixture, addresses: list[str], keys: KeyRing | None, warned: str | None
) -> None:
    warn_of_strangers([FakeSocket(address) for address in addresses], keys)  # type: ignore[misc]
    reason = "--api-key or --keys lets in only those who have a key"
    assert caplog.messages == ([f"all who can reach {warned} can use this server; {reason}"] if warned else [])


def test_one_line_warns_that_slots_cannot_be_saved(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    log_choices(settings_for(slot_save_path=tmp_path), Listening([], []))
    assert (caplog.messages, list(tmp_path.iterdir())) == ([], [])
    file = tmp_path / "file"
    file.touch()
    log_choices(settings_for(slot_save_path=file), Listening([], []))
    assert caplog.messages == [f"slots can be restored but not saved: --slot-save-path {file}: Not a directory"]


def test_a_signal_while_loading_stops_it_cleanly() -> None:
    with program("--model", str(model_path())) as process:
        said(process, "loading")
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=30)
        assert (process.returncode, "Traceback" in rest) == (0, False)


def test_a_unix_socket_of_another_server_is_one_line_and_4(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        code, lines = ended("--unix-socket", str(path))
    assert (code, lines) == (4, [f"llama-gateway: cannot listen on {path}: Address already in use"])


@pytest.mark.parametrize("backend", TRIO_FIRST)
def test_it_serves_tls_and_a_unix_socket_and_reloads(tmp_path: Path, backend: str) -> None:
    files = files_in(tmp_path)
    unix = tmp_path / "gateway.sock"
    flags = ("--tls-certificate", str(files.certificate), "--tls-key", str(files.key), "--unix-socket", str(unix))
    with program("--threads", "1", "--async-backend", backend, *flags) as process:
        line = said(process, "listening on https://127.0.0.1:")
        assert f" and unix:{unix}, serving tiny" in line
        root = line.partition("listening on ")[2].partition(" ")[0]
        with httpx.Client(verify=client_context(), timeout=GUARD) as client:
            assert client.get(f"{root}/readyz").json() == {"status": "ok"}
            process.send_signal(signal.SIGHUP)
            said(process, "the certificate was read again")
            assert client.get(f"{root}/livez").json() == {"status": "ok"}
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(unix)), timeout=GUARD) as client:
            assert client.get("http://localhost/readyz").json() == {"status": "ok"}
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in rest, unix.exists()) == (0, False, False)


def test_a_new_log_level_reaches_the_engine_process(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("log-level = 'info'\n")
    with program("--model", str(model_path()), "--config", str(file)) as process:
        root = said(process, "listening on ").partition("listening on ")[2].partition(",")[0]
        file.write_text("log-level = 'debug'\n")
        process.send_signal(signal.SIGHUP)
        said(process, "the log level is debug")
        httpx.post(f"{root}/v1/completions", json={"prompt": "a", "max_tokens": 1}, timeout=GUARD).raise_for_status()
        said(process, "DEBUG engine.worker.intake request checked")


def test_the_log_names_the_model_of_an_engine(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    model = f"file = '{model_path()}'\n"
    file.write_text(f"threads = 1\n[models.a]\n{model}keep-loaded = true\n[models.b]\n{model}")
    with program("--config", str(file)) as process:
        lines = log_until(process, "listening on ")
        root = lines[-1].partition("listening on ")[2].partition(",")[0]
        endless = {"model": "b", "prompt": "a", "max_tokens": 1000, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{root}/v1/completions", json=endless, timeout=GUARD) as answer:
            next(answer.iter_lines())
        lines += log_until(process, "request cancelled")
        for engine in engines_of(process.pid):
            os.kill(engine, signal.SIGKILL)
        lines += log_until(process, "engine process replaced")
    of_engines = [line for line in lines if " engine." in line]
    assert len(of_engines) > 3
    assert all(" model=a" in line or " model=b" in line for line in of_engines), of_engines
