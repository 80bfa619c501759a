"""The command `llama-gateway keys`: its output, its exit codes, and what is in the store afterwards."""

import math
import re
import secrets
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import orjson
import pytest

from gateway.keys.arguments import read_arguments
from gateway.keys.key import Key, KeyLimits
from gateway.keys.secret import hash_of
from gateway.keys.sql_store import SqlKeyStore
from gateway.keys.store import StoredKey
from gateway.program import main
from gateway.storage.sqlite import SQLiteDatabase
from gateway.usage.row import UsageRow
from gateway.usage.store import usage_store
from tests.program import ROOT

Row = tuple[str | float, ...]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.db"


class Terminal:
    """Runs the command on one store."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capsys = capsys

    def run(self, action: str, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Return what was printed on standard output and standard error."""
        assert main(["keys", action, "--keys", str(self.path), *arguments]) == code
        out, err = self._capsys.readouterr()
        return out, err

    def json(self, action: str, *arguments: str) -> Any:
        return orjson.loads(self.run(action, "--json", *arguments)[0])

    def stored(self) -> list[StoredKey]:
        async def read() -> list[StoredKey]:
            database = SQLiteDatabase(self.path)
            try:
                return await SqlKeyStore(database).keys()
            finally:
                await database.close()

        return anyio.run(read)


@pytest.fixture
def terminal(path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(path, capsys)


def test_a_new_key_is_printed_once_and_stored_as_a_hash(terminal: Terminal) -> None:
    out, err = terminal.run("add", "--name", "alice")
    secret = out.strip()
    (stored,) = terminal.stored()
    assert stored.key == Key(id=stored.key.id, name="alice")
    assert stored.secret_hash == hash_of(secret)
    assert err == f"{stored.key.id} (alice): this secret cannot be shown again\n"
    assert not any(secret.encode() in file.read_bytes() for file in terminal.path.parent.iterdir())
    for action, name in (("list", ()), ("limits", ("alice",))):
        assert secret not in "".join(terminal.run(action, *name))
        assert stored.secret_hash not in "".join(terminal.run(action, *name, "--json"))


def test_a_new_key_has_all_that_is_given(terminal: Terminal) -> None:
    before = time.time()
    terminal.run(
        *("add", "--name", " alice ", "--models", "tiny, other", "--requests-per-minute", "1"),
        *("--tokens-per-minute", "2", "--concurrent-requests", "3", "--tokens-per-day", "4", "--tokens-per-month", "5"),
        *("--weight", "0.5", "--priority", "-7", "--expires", "30d"),
    )
    key = terminal.stored()[0].key
    assert key.expires_at is not None
    assert before <= key.expires_at - 30 * 86_400 <= time.time()
    assert key == Key(
        id=key.id,
        name="alice",
        models=frozenset({"tiny", "other"}),
        limits=KeyLimits(
            requests_per_minute=1, tokens_per_minute=2, concurrent_requests=3, tokens_per_day=4, tokens_per_month=5
        ),
        weight=0.5,
        priority=-7,
        expires_at=key.expires_at,
    )


def test_limits_change_only_what_is_given(terminal: Terminal) -> None:
    made = terminal.json("add", "--name", "alice", "--tokens-per-day", "4", "--models", "a")
    (shown,) = terminal.json("limits", "alice", "--requests-per-minute", "9", "--expires", "2999-01-31T12:00+01:00")
    assert (shown["tokens_per_day"], shown["requests_per_minute"], shown["models"]) == (4, 9, ["a"])
    assert shown["expires_at"] == "2999-01-31T11:00:00Z"
    (shown,) = terminal.json("limits", made["id"], "--tokens-per-day", "none", "--models", "all", "--expires", "never")
    assert (shown["tokens_per_day"], shown["requests_per_minute"], shown["models"]) == (None, 9, None)
    assert shown["expires_at"] is None
    (shown,) = terminal.json("limits", "alice", "--name", "bob")
    assert shown == terminal.json("limits", "bob")[0]
    assert terminal.stored()[0].secret_hash == hash_of(made["secret"])


def test_keys_are_listed_as_a_table_and_as_json(terminal: Terminal) -> None:
    for name in ("alice", "bob"):
        terminal.run("add", "--name", name, "--expires", "2999-01-31", "--requests-per-minute", "60")
    terminal.run("revoke", "alice")
    head, alice, bob = terminal.run("list")[0].splitlines()
    assert head.split()[:4] == ["id", "name", "state", "models"]
    assert alice.split()[1:] == ["alice", "revoked", "all", "60", *"----", "1", "0", "2999-01-31T00:00:00Z"]
    assert bob.split()[1:3] == ["bob", "active"]
    assert [len(line.split("  ")[0]) for line in (alice, bob)] == [20, 20]
    listed = terminal.json("list")
    assert [key["state"] for key in listed] == ["revoked", "active"]
    assert listed[0]["revoked_at"].startswith(str(datetime.now(UTC).year))


def test_a_rotated_key_has_another_secret(terminal: Terminal) -> None:
    first = terminal.json("add", "--name", "alice")
    second = terminal.json("rotate", "alice")
    assert (second["id"], second["name"]) == (first["id"], "alice")
    assert terminal.stored()[0].secret_hash == hash_of(second["secret"]) != hash_of(first["secret"])
    third = terminal.run("rotate", first["id"])[0].strip()
    assert terminal.stored()[0].secret_hash == hash_of(third)


def test_a_name_means_the_active_key(terminal: Terminal) -> None:
    old = terminal.json("add", "--name", "alice")["id"]
    assert terminal.run("revoke", "alice")[1] == f"{old} (alice) is revoked\n"
    new = terminal.json("add", "--name", "alice")["id"]
    assert terminal.json("limits", "alice")[0]["id"] == new
    (revoked,) = terminal.json("revoke", "alice")
    assert (revoked["id"], revoked["state"]) == (new, "revoked")


def test_a_revoked_key_is_not_changed_again(terminal: Terminal) -> None:
    key_id = terminal.json("add", "--name", "alice")["id"]
    terminal.run("revoke", "alice")
    for change in (("revoke",), ("rotate",), ("limits", "--weight", "2")):
        for name in ("alice", key_id):
            error = terminal.run(*change[:1], name, *change[1:], code=2)
            assert error == ("", f"llama-gateway keys: the key {name!r} is revoked already\n")
    assert terminal.json("limits", "alice")[0]["state"] == "revoked"


def test_what_cannot_be_done_is_one_line_and_2(terminal: Terminal) -> None:
    unusable = "llama-gateway keys: the store cannot be used: "
    assert terminal.run("list", code=2) == ("", f"{unusable}{terminal.path}: No such file or directory\n")
    assert not terminal.path.exists()
    terminal.run("add", "--name", "alice")
    taken = "llama-gateway keys: another active key has the name 'alice'\n"
    assert terminal.run("add", "--name", "alice", code=2) == ("", taken)
    for action in ("limits", "rotate", "revoke", "usage"):
        error = terminal.run(action, "bob", code=2)
        assert error == ("", "llama-gateway keys: there is no active key 'bob'\n")


def test_usage_is_shown_by_key_model_and_day(terminal: Terminal) -> None:
    alice = terminal.json("add", "--name", "alice")["id"]
    bob = terminal.json("add", "--name", "bob")["id"]
    rows: list[Row] = [
        (alice, "tiny", "2026-01-30", _at("2026-01-30"), 1, 10, 4, 5),
        (alice, "tiny", "2026-01-31", _at("2026-01-31"), 1, 20, 0, 5),
        (alice, "tiny", "2026-01-31", _at("2026-01-31T23:59:59"), 2, 1, 1, 1),
        (bob, "tiny", "2026-01-31", _at("2026-01-31"), 1, 7, 0, 7),
        ("api-key-1", "tiny", "2026-01-31", _at("2026-01-31"), 1, 8, 0, 8),
        (bob, "tiny", "2026-02-01", _at("2026-02-01"), 1, 9, 0, 9),
    ]
    anyio.run(_write_usage, terminal.path, rows)
    period = ("--since", "2026-01-31", "--until", "2026-02-01")
    shown = {usage["name"]: usage for usage in terminal.json("usage", *period)}
    assert shown.keys() == {"alice", "bob", "api-key-1"}
    assert shown["alice"] == {
        "name": "alice",
        "key_id": alice,
        "model": "tiny",
        "day": "2026-01-31",
        "requests": 3,
        "prompt_tokens": 21,
        "cached_tokens": 1,
        "completion_tokens": 6,
    }
    head, row = terminal.run("usage", "bob", *period)[0].splitlines()
    assert head.startswith("name")
    assert row.split() == ["bob", bob, "tiny", "2026-01-31", "1", "7", "0", "7"]
    assert terminal.json("usage") == []
    other = terminal.path.with_name("usage.db")
    terminal.run("usage", "--usage", str(other), code=2)
    anyio.run(_write_usage, other, rows[:1])
    assert [usage["key_id"] for usage in terminal.json("usage", "--usage", str(other), "--since", "2026-01-01")] == [
        alice
    ]


def test_keys_that_no_server_has_used_have_no_usage(terminal: Terminal) -> None:
    terminal.run("add", "--name", "alice")
    assert terminal.json("usage") == []
    terminal.run("add", "--name", "bob")  # the new table disturbs no other command


def test_a_server_that_runs_stores_its_usage_in_a_new_file_in_place_of_its_own(terminal: Terminal) -> None:
    terminal.run("add", "--name", "alice")
    anyio.run(partial(_write_usage, creates=False), terminal.path, [("k", "tiny", "2026-01-30", 1.0, 1, 10, 4, 5)])
    assert [usage["key_id"] for usage in terminal.json("usage", "--since", "1970-01-01")] == ["k"]


def _at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


async def _write_usage(path: Path, rows: list[Row], *, creates: bool = True) -> None:
    columns = ("key_id", "model", "day", "at", "requests", "prompt_tokens", "cached_tokens", "completion_tokens")
    store = usage_store(str(path))
    if creates:
        await store.create()
    await store.add(
        [UsageRow(id=secrets.token_hex(8), **cast("Any", dict(zip(columns, row, strict=True)))) for row in rows]
    )
    await store.close()


# Arguments


def test_the_readme_has_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "gateway" / "keys" / "README.md").read_text(encoding="utf-8")
    for action in ("add", "list", "limits", "rotate", "revoke", "usage"):
        with pytest.raises(SystemExit):
            read_arguments([action, "--help"], {})
        for flag in re.findall(r"--[a-z-]+", capsys.readouterr().out):
            assert flag == "--help" or f"`{flag}" in readme, flag


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        read_arguments(arguments, {"LLAMA_GATEWAY_KEYS": "keys.db"})
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err.rstrip()


@pytest.mark.parametrize(
    ("flag", "value", "reason"),
    [
        ("--requests-per-minute", "0", "'0' is neither a number from 1 nor none"),
        ("--tokens-per-day", "1_000", "'1_000' is neither a number from 1 nor none"),
        ("--tokens-per-month", "-1", "'-1' is neither a number from 1 nor none"),
        ("--weight", "0", "'0' is not a number from 0.01 to 100"),
        ("--weight", "1_0", "'1_0' is not a number from 0.01 to 100"),
        ("--weight", "nan", "'nan' is not a number from 0.01 to 100"),
        ("--priority", "1.5", "'1.5' is not a whole number of at most 9 digits"),
        ("--expires", "soon", "'soon' is not a time such as 2027-01-31 or 2027-01-31T12:00Z"),
        (
            "--expires",
            "9999-12-31T23:59-01:00",
            "'9999-12-31T23:59-01:00' is not a time such as 2027-01-31 or 2027-01-31T12:00Z",
        ),
        ("--expires", "0d", "'0d' is not a time such as 2027-01-31 or 2027-01-31T12:00Z"),
        ("--expires", "2020-01-01", "'2020-01-01' is in the past; `revoke` ends a key now"),
        ("--models", " ,", "' ,' names no model"),
        ("--models", "a\x1bb", "'a\\x1bb' names no model"),
    ],
)
def test_a_wrong_value_is_refused(capsys: pytest.CaptureFixture[str], flag: str, value: str, reason: str) -> None:
    for action in (("add", "--name", "a"), ("limits", "a")):
        text = complaint(capsys, *action, flag, value)
        assert text == f"llama-gateway keys {action[0]}: argument {flag}: {reason}"


def test_all_beside_other_names_is_the_name_of_a_model(terminal: Terminal) -> None:
    terminal.run("add", "--name", "alice", "--models", "all, tiny")
    (stored,) = terminal.stored()
    assert stored.key.models == frozenset({"all", "tiny"})


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[31m", "key_1", "x" * 101])
def test_a_wrong_name_is_refused(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert "a name has 1 to 100 printable characters" in complaint(capsys, "add", "--name", name)


@pytest.mark.parametrize("arguments", [("steal",), ("add",), ("revoke",), ("list", "--colour"), ("add", "--nam", "a")])
def test_incomplete_and_unknown_arguments_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert complaint(capsys, *arguments).startswith("llama-gateway keys")


def test_a_call_without_an_action_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    listed = "add, list, limits, rotate, revoke, usage; --help describes them"
    assert complaint(capsys) == f"llama-gateway keys: name an action: {listed}"


def test_the_store_is_named_by_a_flag_or_a_variable(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"LLAMA_GATEWAY_KEYS": "a.db"}
    assert read_arguments(["list"], environment).store == "a.db"
    assert read_arguments(["list", "--keys", "b.db"], environment).store == "b.db"
    with pytest.raises(SystemExit):
        read_arguments(["list"], {})
    assert "name the store by --keys STORE, or by the variable LLAMA_GATEWAY_KEYS" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--keys", "--usage"])
def test_a_password_in_a_wrong_url_is_not_shown(capsys: pytest.CaptureFixture[str], flag: str) -> None:
    text = complaint(capsys, "usage", flag, "postgresql://user:w%zzord@example.org/keys")
    assert text == f"llama-gateway keys: {flag}: this is not a valid URL of a PostgreSQL database"


def test_usage_of_all_times(path: Path) -> None:
    given = read_arguments(["usage", "--keys", str(path), "--since", "1970-01-01", "--until", "1970-01-01"], {})
    assert (given.since, given.until) == (0, 0)


@pytest.mark.parametrize("period", [("2026-02-01", "2026-01-31"), ("2026-01-31",)])
def test_a_period_that_ends_before_it_begins_is_refused(
    capsys: pytest.CaptureFixture[str], period: tuple[str, ...]
) -> None:
    *since, until = period
    text = complaint(capsys, "usage", *(f"--since={begin}" for begin in since), "--until", until)
    assert text == "llama-gateway keys: --until is before --since, whose default is the first of this month"


def test_usage_begins_with_this_month(path: Path) -> None:
    given = read_arguments(["usage", "--keys", str(path)], {})
    begin = datetime.fromtimestamp(given.since, UTC)
    assert (begin.day, begin.hour, begin.minute, begin.second) == (1, 0, 0, 0)
    assert begin <= datetime.now(UTC)
    assert given.until == math.inf
    assert given.usage_store == str(path)
