"""All metrics of a gateway, and their text formats."""

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest
from prometheus_client.openmetrics.exposition import ALLOWUTF8, CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from gateway.metrics.llama_cpp import LONGEST

_GAUGE, _COUNTER = (f"# TYPE {LONGEST} {kind}\n".encode() for kind in ("gauge", "counter"))
"""Lines that differ from llama-server's only by the type, which no other format would allow."""


@dataclass(frozen=True, slots=True)
class Page:
    """The metrics of one moment as text."""

    text: bytes
    """The text."""
    content_type: str
    """Its media type, with the version of the format."""


class Exposition:
    """The metrics of one gateway, in a registry of its own."""

    def __init__(self, collectors: Iterable[Collector]) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        """The collectors of all metrics."""
        for collector in collectors:
            self.registry.register(collector)

    def page(self, accept: str) -> Page:
        """Return the metrics in the format that an `Accept` header asks for: text, or OpenMetrics."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # the header has a version that is no number
            encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
        if content_type.startswith("text/plain"):
            return Page(encode(self.registry).replace(_GAUGE, _COUNTER, 1), content_type)
        # No name needs escaping. Without UTF-8 the encoder escapes the colons of samples, but not of their families.
        text = generate_openmetrics(self.registry, escaping=ALLOWUTF8)  # type: ignore[no-untyped-call]
        return Page(text, CONTENT_TYPE_LATEST)
