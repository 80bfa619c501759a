"""Choice of a model's files among those of a repository. Follows llama.cpp's `-hf`."""

import re
from collections.abc import Iterable

from engine.gguf.split_file import SplitFile, parts_of
from gateway.hub.errors import MISSING, HubError
from gateway.hub.reference import HubReference

DEFAULT_QUANTS = ("Q4_K_M", "Q8_0")
"""Quantisations that are taken without a wish, in this order. Without them it is the first model."""
MOST_NAMED = 20
"""Models that an error offers by name."""
_COMPANIONS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
"""In names of GGUF files that are not models of their own: projectors, statistics, draft models."""
_QUANT = re.compile(r"(?:^|[-.])([A-Za-z0-9_]*\d[A-Za-z0-9_]*)$", re.ASCII)


def is_model(name: str) -> bool:
    """Return whether a file is a model, or the first part of one."""
    split = SplitFile.parse(name)
    base = name.rpartition("/")[2].lower()
    first = split is None or split.part == 1
    return first and base.endswith(".gguf") and not any(word in base for word in _COMPANIONS)


def quant_of(name: str) -> str | None:
    """Return the quantisation in a file's name, if it has one."""
    split = SplitFile.parse(name)
    stem = split.stem if split else name.rpartition(".")[0]
    match = _QUANT.search(stem.rpartition("/")[2])
    return match and match[1].upper()


def choose(names: Iterable[str], reference: HubReference) -> list[str]:
    """Return the files of a model: one, or all its parts in order.

    Args:
        names: All files of the repository.
        reference: Model to choose.

    Raises:
        HubError: There is no such model, or a part of it is missing.
    """
    present = sorted(names)
    models = [name for name in present if is_model(name)]
    first = _first(models, reference, present)
    if first is None:
        raise HubError(f"{reference}: {_offer(models, reference.repository)}", code=MISSING)
    parts = parts_of(first)
    if missing := sorted(set(parts) - set(present)):
        raise HubError(f"{reference}: the repository lacks a part of this model: {missing[0]}")
    return parts


def _first(models: list[str], reference: HubReference, present: list[str]) -> str | None:
    """Return the model that the reference names; of several parts the first."""
    if reference.file is not None:
        wanted = parts_of(reference.file)[0]
        return wanted if wanted in present else None
    for quant in (reference.quant,) if reference.quant else DEFAULT_QUANTS:
        # Bounded on both sides, so that Q4_XS is not IQ4_XS. A folder may have the name of the quantisation.
        pattern = re.compile(rf"(?:^|[-_./]){re.escape(quant)}[-./]", re.IGNORECASE)
        for name in models:
            if pattern.search(name):
                return name
    return None if reference.quant or not models else models[0]


def _offer(models: list[str], repository: str) -> str:
    """Return a phrase with the models that there are instead."""
    if not models:
        return "the repository has no GGUF model"
    labels = sorted({quant_of(name) or name for name in models})
    more = f" and {len(labels) - MOST_NAMED} more" if len(labels) > MOST_NAMED else ""
    return f"the repository {repository} has no such model; it has {', '.join(labels[:MOST_NAMED])}{more}"
