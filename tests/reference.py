"""The generated lists of the README files, made from the tables that the program itself uses.

    python -m tests.reference

writes each list between its marks, `<!-- generated: routes -->` and `<!-- end -->`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import RootModel
from pydantic.fields import FieldInfo

from gateway.apis.endpoint import AnyEndpoint, has_body
from gateway.apis.fields.base import Fields
from gateway.apis.fields.constraints import GrammarFields
from gateway.apis.fields.labels import LabelFields
from gateway.apis.fields.refusing import RefusingFields
from gateway.apis.fields.sampling import ReportFields, SamplingFields, StreamReportFields
from gateway.flags import flag_fields
from gateway.metrics.adapters import AdapterCollector
from gateway.metrics.engines import EngineCollector
from gateway.metrics.exposition import Exposition
from gateway.metrics.requests import RequestMetrics
from gateway.metrics.server import ServerMetrics
from gateway.openapi.document import plain_path
from gateway.openapi.statuses import DESCRIPTIONS
from tests.gateway.application import apis, gateway_of
from tests.gateway.fake_engine import FakeEngine
from tests.llama_server_suite.known import KNOWN

ROOT = Path(__file__).parents[1]
SHARED: Mapping[str, type[Fields]] = {
    "sampling": SamplingFields,
    "constraints": GrammarFields,
    "report": ReportFields,
    "progress": StreamReportFields,
    "labels": LabelFields,
}
"""Fields that several bodies have, by the name of their group."""

_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SUFFIXES = {"counter": "_total", "info": "_info"}
"""Suffixes that Prometheus adds to the names of metrics, by their types."""
_DEFAULT = re.compile(r"; default: (.+)$")


def routes() -> str:
    """Every endpoint, in the order of routing."""
    rows = ((_route(one), one.summary, "yes" if one.events is not None else "") for one in _endpoints())
    return _table(("route", "what it does", "streams"), rows)


def flags() -> str:
    """Every setting, with its default and its help text, and the file that may have them."""
    rows = [(_flag(name, field), _default(field), _about(field)) for name, field in flag_fields().items()]
    config = ("`--config` FILE", "none", "a TOML file of settings")
    return _table(("flag", "default", "what it sets"), (*rows, config))


def fields() -> str:
    """The fields of every body, those that several bodies share first."""
    groups = ((f"*{name}*", _names(group.model_fields), "") for name, group in SHARED.items())
    return _table(("body of", "fields", "refused fields"), (*groups, *_bodies()))


def statuses() -> str:
    """Every status of a failure."""
    return _table(("status", "meaning"), ((str(status), reason) for status, reason in DESCRIPTIONS.items()))


def metrics() -> str:
    """Every metric, in the order of a scrape."""
    models = gateway_of(FakeEngine()).models
    requests, server = RequestMetrics(served.name for served in models.all), ServerMetrics(float, bool)
    collectors = (requests, EngineCollector(models.all), AdapterCollector(models.all), server)
    families: Iterable[Any] = Exposition(collectors).registry.collect()
    rows = ((_metric(family), family.type, _names(family._labelnames), family.documentation) for family in families)
    return _table(("metric", "type", "labels", "meaning"), rows)


def left() -> str:
    """Every test of llama-server's own suite that fails, by the reason."""
    return _table(("tests that", "which"), ((reason, _names(map(_test, tests))) for reason, tests in KNOWN.items()))


BLOCKS: Mapping[str, Callable[[], str]] = {
    "routes": routes,
    "flags": flags,
    "fields": fields,
    "statuses": statuses,
    "metrics": metrics,
    "left": left,
}
"""The lists, by the names in their marks."""


def readmes() -> list[Path]:
    """Return the project's README files."""
    folders = (ROOT / name for name in ("engine", "gateway", "tests", "examples"))
    return [ROOT / "README.md", *sorted(path for folder in folders for path in folder.rglob("*.md"))]


def refreshed(text: str) -> str:
    """Return the text of a file with its lists made again. Raises `KeyError` for a list that does not exist."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{BLOCKS[block[2]]()}\n{block[3]}", text)


def main() -> None:
    """Refresh the README files."""
    for path in readmes():
        text = path.read_text(encoding="utf-8")
        if (new := refreshed(text)) != text:
            path.write_text(new, encoding="utf-8")


def _endpoints() -> Iterator[AnyEndpoint]:
    for api in apis():
        yield from api.endpoints


def _test(name: str) -> str:
    return name.partition("::test_")[2]


def _route(endpoint: AnyEndpoint) -> str:
    return f"`{endpoint.method} {plain_path(endpoint.path)}`"


def _metric(family: Any) -> str:
    return f"`{family.name}{_SUFFIXES.get(family.type, '')}`"


def _flag(name: str, field: FieldInfo) -> str:
    choices: Iterable[str] = () if field.title else getattr(field.annotation, "__args__", ())
    value = field.title or ", ".join(choices)
    return f"`--{name.replace('_', '-')}` {value}".rstrip()


def _default(field: FieldInfo) -> str:
    if isinstance(field.default, bool):
        return "on" if field.default else "off"
    if isinstance(field.default, float):
        return f"{field.default:g}"
    if isinstance(field.default, int | str):
        return str(field.default)
    described = _DEFAULT.search(field.description or "")
    return described[1] if described else "none"


def _about(field: FieldInfo) -> str:
    return _DEFAULT.sub("", field.description or "")


def _bodies() -> Iterator[tuple[str, str, str]]:
    routes_of: dict[type[Any], list[str]] = {}
    for endpoint in _endpoints():
        if has_body(endpoint):
            routes_of.setdefault(endpoint.body, []).append(_route(endpoint))
    for body, its_routes in routes_of.items():
        shared = {name: group for name, group in SHARED.items() if issubclass(body, group)}
        inherited = {field for group in shared.values() for field in group.model_fields}
        listed = issubclass(body, RootModel)
        own = (
            "*array*"
            if listed
            else _names(field.alias or name for name, field in body.model_fields.items() if name not in inherited)
        )
        refused = _names(body.unsupported) if issubclass(body, RefusingFields) else ""
        yield ", ".join(its_routes), ", ".join([own, *(f"*{name}*" for name in shared)]), refused


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
