"""Places of databases: what is accepted before anything is opened."""

from pathlib import Path

import pytest

from gateway.storage import place
from gateway.storage.place import check_place, open_database
from gateway.storage.postgres import PostgresDatabase
from gateway.storage.sqlite import SQLiteDatabase


def test_a_place_is_a_file_or_a_url(tmp_path: Path) -> None:
    for text, kind in (
        (str(tmp_path / "keys.db"), SQLiteDatabase),
        ("keys.db", SQLiteDatabase),
        ("postgresql://user:word@example.org/keys", PostgresDatabase),
        ("postgres:///keys", PostgresDatabase),
    ):
        assert check_place(text) == text
        assert isinstance(open_database(text), kind)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("/no/such/folder/keys.db", "there is no such folder"),
        ("~nosuchuser/keys.db", "there is no such home directory"),
        (f"/{'x' * 300}/keys.db", "the folder cannot be read: File name too long"),
        ("mysql://user:word@example.org/keys", "this is neither a file nor a URL that begins with postgresql://"),
        ("postgresql://user:w%zzord@example.org/keys", "this is not a valid URL of a PostgreSQL database"),
        ("postgresql://user:word@example.org/keys?colour=red", "this is not a valid URL of a PostgreSQL database"),
    ],
)
def test_a_wrong_place_is_refused_without_repeating_it(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        check_place(text)


def test_postgresql_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "find_spec", lambda _name: None)
    with pytest.raises(ValueError, match=r"pip install 'llama-gateway\[postgres\]'"):
        check_place("postgresql:///keys")
