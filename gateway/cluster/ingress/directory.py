"""Replicas that this process knows, by deployment. Ray's router in this process keeps it up to date."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_replicas: dict[str, Mapping[str, Mapping[str, Any]]] = {}


def update(deployment: str, replicas: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the replicas of a deployment: what each reported last, by its id. May be called from any thread."""
    _replicas[deployment] = MappingProxyType(dict(replicas))


def replicas_of(deployment: str) -> Mapping[str, Mapping[str, Any]]:
    """Return what each replica of a deployment reported last, by its id. They run, as far as this process knows."""
    return _replicas.get(deployment, {})
