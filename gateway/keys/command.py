"""The command `llama-gateway keys`: manages the keys of a store, also while servers use it."""

import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import orjson

from gateway.arguments import ExitCode, exit_with
from gateway.keys import table
from gateway.keys.arguments import Action, Arguments, read_arguments
from gateway.keys.key import Key
from gateway.keys.secret import hash_of, new_id, new_secret
from gateway.keys.sql_store import SqlKeyStore
from gateway.keys.store import KeyStoreError, NoSuchKeyError, StoredKey
from gateway.storage.database import StorageError
from gateway.storage.place import open_database
from gateway.usage.store import UsageStore, usage_store

JSON_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def keys(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: the command line without the command's name.
        environment: has the default of the store.
    """
    given = read_arguments(arguments, environment)
    try:
        anyio.run(run, given)
    except KeyStoreError as error:
        return exit_with(ExitCode.SETTINGS, str(error), "keys")
    except StorageError as error:
        return exit_with(ExitCode.SETTINGS, f"the store cannot be used: {error}", "keys")
    return ExitCode.DONE


async def run(given: Arguments) -> None:
    """Run one action and print its result.

    Raises:
        StorageError: the store cannot be used.
        KeyStoreError: it has no such key, or the name is taken.
    """
    store = SqlKeyStore(open_database(given.store))
    try:
        await KeyCommand(store, given).run()
    finally:
        await store.close()


class KeyCommand:
    """One call of the command. Results are on standard output, and remarks for people on standard error."""

    def __init__(self, store: SqlKeyStore, given: Arguments) -> None:
        """Use a store, and the arguments of a command line."""
        self._store = store
        self._given = given

    async def run(self) -> None:
        """Run the action. Raises the errors of `run`."""
        actions: Mapping[Action, Callable[[], Awaitable[None]]] = {
            "add": self._add,
            "list": self._list,
            "limits": self._limits,
            "rotate": self._rotate,
            "revoke": self._revoke,
            "usage": self._usage,
        }
        await actions[self._given.action]()

    async def _add(self) -> None:
        await self._store.create()  # only here: elsewhere, a store that does not exist is a mistyped one
        if self._given.usage_store == self._given.store:
            async with self._usage_store() as usage:
                await usage.create()  # for `keys usage`, and for a running server whose file this one replaces
        secret = new_secret()
        key = self._given.edit(Key(id=new_id(), name=""))
        await self._store.add(key, hash_of(secret))
        self._print_secret(key, secret)

    async def _list(self) -> None:
        self._print_keys(await self._store.keys())

    async def _limits(self) -> None:
        if self._given.changes:
            key = await self._active()
            await self._store.edit(key.id, self._given.edit)
        else:
            key = (await self._named()).key
        await self._print_key(key.id)

    async def _rotate(self) -> None:
        key = await self._active()
        secret = new_secret()
        await self._store.rotate(key.id, hash_of(secret))
        self._print_secret(key, secret)

    async def _revoke(self) -> None:
        key = await self._active()
        await self._store.revoke(key.id)
        if self._given.json:
            await self._print_key(key.id)
        else:
            _remark(f"{key.id} ({key.name}) is revoked")

    async def _usage(self) -> None:
        names = {stored.key.id: stored.key.name for stored in await self._store.keys()}
        key_id = (await self._named()).key.id if self._given.key else None
        async with self._usage_store() as store:
            sums = await store.usage_by_key(self._given.since, self._given.until)
        chosen = [usage for usage in sums if key_id in {None, usage.key_id}]
        if self._given.json:
            _print_json([table.usage_object(usage, names) for usage in chosen])
        else:
            _print(table.usage_table(chosen, names))

    @asynccontextmanager
    async def _usage_store(self) -> AsyncIterator[UsageStore]:
        store = usage_store(self._given.usage_store)
        try:
            yield store
        finally:
            await store.close()

    async def _active(self) -> Key:
        """Return the key that the arguments name. Raises `KeyStoreError` if it is revoked."""
        stored = await self._named()
        if stored.revoked_at is not None:
            raise KeyStoreError(f"the key {self._given.key!r} is revoked already")
        return stored.key

    async def _named(self) -> StoredKey:
        """Return the key that the arguments name. An active key goes before revoked ones of the same name."""
        stored = sorted(await self._store.keys(), key=lambda stored: stored.revoked_at is not None)
        for one in stored:
            if self._given.key in {one.key.id, one.key.name}:
                return one
        raise NoSuchKeyError(str(self._given.key))

    def _print_secret(self, key: Key, secret: str) -> None:
        """Print the secret alone, so that a script can take it."""
        if self._given.json:
            _print_json({"id": key.id, "name": key.name, "secret": secret})
            return
        _remark(f"{key.id} ({key.name}): this secret cannot be shown again")
        _print(secret)

    async def _print_key(self, key_id: str) -> None:
        self._print_keys(stored for stored in await self._store.keys() if stored.key.id == key_id)

    def _print_keys(self, stored: Iterable[StoredKey]) -> None:
        now = time.time()
        if self._given.json:
            _print_json([table.key_object(one, now) for one in stored])
        else:
            _print(table.keys_table(stored, now))


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _print_json(value: object) -> None:
    sys.stdout.write(orjson.dumps(value, option=JSON_OPTIONS).decode())


def _remark(text: str) -> None:
    sys.stderr.write(text + "\n")
