"""Checks of the tools of a request that the APIs share."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import orjson
from pydantic import AfterValidator

from gateway.apis.fields.nested import refusal
from gateway.chat.tools import Named, Tool, ToolChoice

MAX_TOOLS = 2**9
"""Maximum of tools in one request. OpenAI takes 128, but agents with several MCP servers send hundreds."""

MAX_PROPERTIES = 2**14
"""Maximum of properties in the parameters of all tools. The gateway looks at each where it reads the calls."""

_NULLABLE = frozenset({"type", "properties", "required"})
"""Keywords for which `null` means that they are not given: some encoders write it for empty arrays and objects."""


def encodable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that can be encoded as JSON. Raises `ValueError`."""
    try:
        orjson.dumps(schema)
    except orjson.JSONEncodeError as error:
        raise ValueError("is nested too deeply") from error
    return schema


def _object_schema(schema: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in encodable(schema).items() if value is not None or name not in _NULLABLE}
    kinds, required = given.get("type", "object"), given.get("required", [])
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        raise ValueError('type should be "object"')
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise ValueError("required should be an array of strings")
    return given


ParametersSchema: TypeAlias = Annotated[dict[str, Any], AfterValidator(_object_schema)]
"""JSON schema of a tool's arguments, which form an object."""


def check_tools(tools: Sequence[Tool], choice: ToolChoice, *, offered: str, chosen: str) -> None:
    """Check that the tools have different names, are not too large, and match the choice.

    Args:
        tools: the tools.
        choice: the rule for calls.
        offered: name of the field with the tools.
        chosen: name of the field with the choice.

    Raises:
        RequestError: one of the fields is invalid.
    """
    names = [tool.name for tool in tools]
    if isinstance(choice, Named) and choice.name not in names:
        raise refusal(chosen, f"names the function {choice.name[:64]!r}, which is not offered")
    if choice == "required" and not names:
        raise refusal(chosen, "is required, but no tools are offered")
    if len(set(names)) < len(names):
        raise refusal(offered, "should have each name once")
    if sum(_properties(tool.parameters) for tool in tools) > MAX_PROPERTIES:
        raise refusal(offered, f"should have at most {MAX_PROPERTIES} properties in total")


def _properties(parameters: Mapping[str, Any]) -> int:
    properties = parameters.get("properties")
    return len(properties) if isinstance(properties, Mapping) else 0
