"""The tools that a request offers to the model, under the names of the client and of the model."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine import RequestError
from gateway.apis.fields.nested import refusal
from gateway.apis.openai.responses.tools.choice import (
    AllowedChoice,
    AllowedHosted,
    AllowedNamespace,
    NamedCustomTool,
    NamedTool,
)
from gateway.apis.openai.responses.tools.names import model_name, prefix_of
from gateway.apis.openai.responses.tools.offered import CallableTool, HostedTool, NamespaceTool, OfferedTool
from gateway.chat.tools import Tool


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool that the client runs."""

    tool: CallableTool
    """The tool."""
    group: NamespaceTool | None
    """The namespace that it is in; None for a plain entry of `tools`."""

    @property
    def namespace(self) -> str | None:
        """Name of its namespace."""
        return None if self.group is None else self.group.name

    @property
    def model_name(self) -> str:
        """Name for the model."""
        return self.tool.name if self.group is None else model_name(self.group.name, self.tool.name)


def offers_of(tools: Iterable[OfferedTool]) -> list[Offer]:
    """Return the tools in the entries of `tools`."""
    offers: list[Offer] = []
    for tool in tools:
        if isinstance(tool, NamespaceTool):
            offers += [Offer(inner, tool) for inner in tool.tools]
        elif not isinstance(tool, HostedTool):
            offers.append(Offer(tool, None))
    return offers


def tools_of(offers: Iterable[Offer]) -> Iterator[Tool]:
    """Yield the tools for the chat template. The first one of a namespace also has the namespace's description."""
    described: set[str] = set()
    for offer in offers:
        tool = replace(offer.tool.tool(), name=offer.model_name)
        if offer.group is not None and offer.group.name not in described:
            described.add(offer.group.name)
            tool = replace(tool, description=_with_group(tool.description, offer.group))
        yield tool


def _with_group(description: str | None, group: NamespaceTool) -> str | None:
    about = f"About all tools `{prefix_of(group.name)}…`: {group.description}" if group.description else None
    return "\n\n".join(filter(None, (description, about))) or None


def named(offers: Iterable[Offer], choice: NamedTool | NamedCustomTool, verb: str = "names") -> Offer:
    """Return the tool that a choice names. Without a namespace a plain tool with this name comes first.

    Raises:
        RequestError: the tool is not offered, or several namespaces have one with this name.
    """
    found = {
        offer.namespace: offer
        for offer in offers
        if (offer.tool.type, offer.tool.name) == (choice.type, choice.name)
        and choice.namespace in (None, offer.namespace)
    }
    if None in found:
        return found[None]
    if len(found) != 1:
        reason = "which several namespaces have: give one of them" if found else "which is not offered"
        raise refusal("tool_choice", f"{verb} the {_described(choice)}, {reason}")
    (offer,) = found.values()
    return offer


def _described(choice: NamedTool | NamedCustomTool) -> str:
    kind = "custom tool" if isinstance(choice, NamedCustomTool) else "function"
    place = "" if choice.namespace is None else f" of the namespace {choice.namespace[:64]!r}"
    return f"{kind} {choice.name[:64]!r}{place}"


def allowed(offers: Sequence[Offer], choice: AllowedChoice, tools: Iterable[OfferedTool]) -> list[Offer]:
    """Return the tools that a choice allows, in their order. Raises `RequestError` if one of them is not offered."""
    hosted = {tool.type for tool in tools if isinstance(tool, HostedTool)}
    by_name, by_namespace = defaultdict[str, list[Offer]](list), defaultdict[str | None, set[str]](set)
    for offer in offers:
        by_name[offer.tool.name].append(offer)
        by_namespace[offer.namespace].add(offer.model_name)
    names: set[str] = set()
    for entry in choice.tools:
        match entry:
            case AllowedHosted(type=kind):
                if kind not in hosted:
                    raise _not_offered(f"tool {kind!r}")
            case AllowedNamespace(name=namespace):
                if namespace not in by_namespace:
                    raise _not_offered(f"namespace {namespace[:64]!r}")
                names |= by_namespace[namespace]
            case _:
                names.add(named(by_name[entry.name], entry, "allows").model_name)
    return [offer for offer in offers if offer.model_name in names]


def _not_offered(described: str) -> RequestError:
    return refusal("tool_choice", f"allows the {described}, which is not offered")
