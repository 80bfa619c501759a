"""Places of databases: the path of an SQLite file, or the URL of a PostgreSQL database."""

from importlib.util import find_spec
from pathlib import Path
from stat import S_ISDIR

from gateway.storage.database import Database

URL_SCHEMES = ("postgresql://", "postgres://")


def is_url(place: str) -> bool:
    """Return True if a place is the URL of a PostgreSQL database, not the path of a file."""
    return place.startswith(URL_SCHEMES)


def check_place(place: str) -> str:
    """Return the place of a database if it can be one. Does not open it.

    Raises:
        ValueError: the place is neither a URL nor a path in an existing folder, or a package is missing.
    """
    if is_url(place):
        if find_spec("psycopg") is None:
            raise ValueError("PostgreSQL needs psycopg: pip install 'llama-gateway[postgres]'")
        from gateway.storage.postgres import check_url  # noqa: PLC0415 - an optional package

        check_url(place)
    elif "://" in place:
        raise ValueError("this is neither a file nor a URL that begins with postgresql://")
    else:
        _check_parent(place)
    return place


def _check_parent(path: str) -> None:
    """Check that a file can be in its folder. Raises `ValueError` if not."""
    try:
        parent = Path(path).expanduser().absolute().parent
    except RuntimeError as error:
        raise ValueError("there is no such home directory") from error
    check_folder(parent)


def check_folder(path: Path) -> None:
    """Check that a folder is there. Raises `ValueError` if it is not, or if that cannot be seen."""
    try:
        found = S_ISDIR(path.stat().st_mode)  # `is_dir` hides errors from Python 3.14 on
    except (FileNotFoundError, NotADirectoryError):
        found = False
    except OSError as error:
        raise ValueError(f"the folder cannot be read: {error.strerror}") from error
    if not found:
        raise ValueError("there is no such folder")


def open_database(place: str) -> Database:
    """Return the database at a place that `check_place` has accepted. It is connected at the first transaction."""
    if is_url(place):
        from gateway.storage.postgres import PostgresDatabase  # noqa: PLC0415 - an optional package

        return PostgresDatabase(place)
    from gateway.storage.sqlite import SQLiteDatabase  # noqa: PLC0415 - most servers need neither

    return SQLiteDatabase(Path(place).expanduser())
