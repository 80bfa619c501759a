"""Identifies what saved cells depend on besides their tokens: the model, the settings, and the build of llama.cpp."""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from engine.config import EngineConfig
from engine.gguf.split_file import parts_of

_HEAD = 16 * 2**20
"""Bytes. The metadata and the names, types and shapes of all tensors of nearly every file."""
_SAMPLES, _SAMPLE = 64, 64 * 2**10
"""Number and bytes of the samples behind it, at equal distances. They tell fine-tuned models apart, whose tensors
differ everywhere; reading the whole file would take a minute."""
_UNRELATED = {
    *("slots", "context", "earlier_context", "threads", "threads_batch", "step_target_ms", "queue_limit"),
    *("speculation", "repack", "prefix_store", "prefix_dir", "prefix_dir_bytes", "context_shift", "metadata_only"),
    *("log_level", "log_format", "log_name", "backend_sampling", "load_mode", "numa", "cpus", "priority"),
}
"""Settings that do not change the meaning of cells. All others count, also those that are added later."""


def fingerprint(config: EngineConfig, facts: Iterable[object]) -> bytes:
    """Return a hash of everything on which saved cells depend, except for their tokens and their partition.

    A setting that names a file counts by that file's contents, not by its path.

    Args:
        config: the configuration.
        facts: what the loaded model and the build of llama.cpp add, as JSON can hold it.
    """
    settings = _contents(asdict(config))
    return hashlib.sha256(json.dumps([settings, *facts], sort_keys=True).encode()).digest()


def _contents(value: object) -> object:
    """Return settings that change cells, with each path of a file replaced by a hash of it."""
    if isinstance(value, dict):
        return {name: _contents(one) for name, one in value.items() if name not in _UNRELATED}
    if isinstance(value, list | tuple):
        return [_contents(one) for one in value]
    if isinstance(value, str) and os.path.isfile(value):  # noqa: PTH113  # Path.is_file raises for long texts
        path = Path(value)
        parts = [part for part in map(path.with_name, parts_of(path.name)) if part.exists()]
        return [_file_hash(part) for part in parts or [path]]  # the name alone may be that of a part
    return value


def _file_hash(path: Path) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_HEAD))
        for at in range(_SAMPLES):
            file.seek(_HEAD + max(0, size - _HEAD) * at // _SAMPLES)
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
