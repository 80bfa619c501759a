"""The commands `llama-gateway pull`, `list` and `remove`: models of the hub on this machine, for all its programs."""

import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import orjson

from gateway.arguments import ExitCode, exit_with
from gateway.hub.arguments import Arguments, read_arguments
from gateway.hub.cache import HubCache
from gateway.hub.choice import choose
from gateway.hub.errors import HubError
from gateway.hub.fetching import fetch
from gateway.hub.reference import HubReference
from gateway.progress import progress_for

_JSON = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def hub(arguments: Sequence[str]) -> int:
    """Run the command that a command line begins with, and return its exit code."""
    given = read_arguments(arguments)
    if find_spec("huggingface_hub") is None:
        return exit_with(ExitCode.SETTINGS, 'this needs a package: pip install "llama-gateway[hub]"', given.action)
    from gateway.hub.opening import hub_cache  # noqa: PLC0415 - it needs the package

    try:
        if given.action == "list":
            _list(hub_cache(), given)
        elif given.model is not None and given.action == "pull":
            anyio.run(_pull, given.model)
        elif given.model is not None:
            _remove(hub_cache(), given.model)
    except HubError as error:
        return exit_with(ExitCode.LOAD, error.message, given.action)
    except KeyboardInterrupt:
        return exit_with(ExitCode.INTERRUPTED, "interrupted; the next pull continues here", given.action)
    return ExitCode.DONE


async def _pull(reference: HubReference) -> None:
    """Print the path alone on standard output, so that a script can take it."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    progress = progress_for(reference.name, verb="downloading")
    try:
        path = await fetch(reference, lambda at: progress.show(at.share))
    finally:
        progress.close()
    sys.stdout.write(f"{path}\n")


def _list(cache: HubCache, given: Arguments) -> None:
    models = [_object(model.reference, model.path, model.size, complete=True) for model in cache.models()]
    for repository, path in cache.partials():
        models.append(_object(f"hf:{repository}", path, path.stat().st_size, complete=False))
    sys.stdout.write(orjson.dumps(models, option=_JSON).decode() if given.json else _table(models))


def _object(model: str, path: Path, size: int, *, complete: bool) -> dict[str, Any]:
    """Return a model, or a download that is not complete, as an object for JSON."""
    modified = int(path.stat().st_mtime)
    return {"model": model, "bytes": size, "downloaded_at": modified, "complete": complete, "path": str(path)}


def _table(models: list[dict[str, Any]]) -> str:
    rows = [("model", "size", "downloaded")]
    for model in models:
        day = datetime.fromtimestamp(model["downloaded_at"], UTC).date().isoformat()
        rows.append((model["model"], _size(model["bytes"]), day if model["complete"] else "not complete"))
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "".join(f"{model:{first}}  {size:>{second}}  {day}\n" for model, size, day in rows)


def _size(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size / 1e6:.2f} MB"  # noqa: PLR2004 - two decimals of either


def _remove(cache: HubCache, reference: HubReference) -> None:
    """Remove a model, or without a quantisation and file all of the repository.

    Raises:
        HubError: There is no such model on this machine, or its files may not be removed.
    """
    names = {name for files in cache.snapshots(reference.repository) for name in files}
    every = reference.quant is None and reference.file is None
    names = names if every else set(choose(names, reference))
    try:
        freed = cache.remove_partials(reference.repository) if every else 0
        freed += cache.remove(reference.repository, names)
    except OSError as error:
        raise HubError(f"{reference} cannot be removed: {error}") from error
    if not (names or freed):
        raise HubError(f"{reference} is not on this machine")
    sys.stderr.write(f"{reference} is removed: {_size(freed)} are free\n")
