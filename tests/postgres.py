"""A PostgreSQL server for tests, on a Unix socket in a temporary folder."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit
from uuid import uuid4

import psycopg
import pytest

DEBIAN = Path("/usr/lib/postgresql")
UNPRIVILEGED = ("postgres", "nobody")
"""Users that the server may run as. It refuses to be started by root."""


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None without PostgreSQL."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    return next(iter(sorted(DEBIAN.glob("*/bin"), reverse=True)), None)


def installed() -> Path:
    """Return the folder of PostgreSQL's programs. Skips the test without PostgreSQL."""
    if (found := programs()) is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    return found


@contextmanager
def serving_postgres(programs: Path) -> Iterator[str]:
    """Run a server without its safety against a crash of the machine; yield the URL of its database."""
    user = next(name for name in UNPRIVILEGED if _exists(name)) if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pg") as folder:  # short, because the path of a socket is limited
        if user is not None:
            shutil.chown(folder, user)
        data = f"{folder}/data"
        initdb = [
            str(programs / "initdb"),
            "-D",
            data,
            *["-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C"],
        ]
        subprocess.run(initdb, user=user, check=True, capture_output=True, cwd=folder)
        control = [str(programs / "pg_ctl"), "-D", data, "-w", "-l", f"{folder}/log"]
        settings = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c max_connections=20"
        subprocess.run([*control, "-o", settings, "start"], user=user, check=True, capture_output=True, cwd=folder)
        try:
            yield f"postgresql://postgres@/postgres?host={quote(folder, safe='')}"
        finally:
            subprocess.run(
                [*control, "-m", "immediate", "stop"], user=user, check=True, capture_output=True, cwd=folder
            )


@contextmanager
def new_database(server: str) -> Iterator[str]:
    """Create a database on a server, and drop it at the end; yield its URL."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield server.replace("/postgres?", f"/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def log_of(url: str) -> str:
    """Return what the server with this URL has logged: errors, before their clients get them."""
    (folder,) = parse_qs(urlsplit(url).query)["host"]
    return (Path(folder) / "log").read_text()


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
