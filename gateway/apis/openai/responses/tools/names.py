"""Names of tools in namespaces. A chat template knows plain names only, so that the model reads and writes `crm__list`.

The clients of MCP name the tools of their servers in this way, and models know it from there.
"""

import orjson

_SEPARATOR = "__"
_NAMESPACED = b'"namespace":'
"""Field of a call in a namespace. A text in JSON cannot contain it, because its quotation marks are escaped."""


def model_name(namespace: str, name: str) -> str:
    """Return the name for the model of a tool in a namespace."""
    return f"{prefix_of(namespace)}{name}"


def prefix_of(namespace: str) -> str:
    """Return the beginning of the names for the model of all tools in a namespace."""
    return f"{namespace}{_SEPARATOR}"


def with_model_name(item: bytes) -> bytes:
    """Return an item for a chat template: the name of a call in a namespace is that for the model.

    Args:
        item: a stored item, as JSON.
    """
    if _NAMESPACED not in item:
        return item
    call = orjson.loads(item)
    call["name"] = model_name(call.pop("namespace"), call["name"])
    return orjson.dumps(call)
