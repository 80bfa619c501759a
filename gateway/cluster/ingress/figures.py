"""Metrics that the ingress adds to those of the replicas, in Prometheus's text format."""

from collections.abc import Iterator, Mapping

from gateway.cluster.ingress.placing import RoutingFigures

_UP = """\
# HELP llama_gateway_replica_up 1 if the replica has answered; otherwise its metrics are missing here.
# TYPE llama_gateway_replica_up gauge
"""
_ROUTED = """\
# HELP llama_gateway_routed_requests_total Requests to replicas, by the reason why this one was chosen.
# TYPE llama_gateway_routed_requests_total counter
"""
_WAITING = """\
# HELP llama_gateway_ingress_waiting_requests Requests that wait in this ingress, because all replicas are full.
# TYPE llama_gateway_ingress_waiting_requests gauge
"""
_HELD = """\
# HELP llama_gateway_routed_blocks Blocks of prompts that the replica holds, as this ingress knows.
# TYPE llama_gateway_routed_blocks gauge
"""


def own_metrics(up: Mapping[str, int], waiting: Mapping[str, int], routing: Mapping[str, RoutingFigures]) -> str:
    """Return the metrics.

    Args:
        up: 1 for each replica that has answered and 0 for the others, by id.
        waiting: number of requests that wait for each model.
        routing: figures of each model.
    """
    return "".join(_lines(up, waiting, routing))


def _lines(up: Mapping[str, int], waiting: Mapping[str, int], routing: Mapping[str, RoutingFigures]) -> Iterator[str]:
    yield _UP
    for replica, answered in up.items():
        yield f'llama_gateway_replica_up{{replica="{replica}"}} {answered}\n'
    yield _WAITING
    for model, number in waiting.items():
        yield f'llama_gateway_ingress_waiting_requests{{model_name="{_escaped(model)}"}} {number}\n'
    yield _ROUTED
    for model, figures in routing.items():
        for reason, number in (("prefix", figures.by_prefix), ("load", figures.by_load)):
            yield f'llama_gateway_routed_requests_total{{model_name="{_escaped(model)}",reason="{reason}"}} {number}\n'
    yield _HELD
    for model, figures in routing.items():
        for replica, blocks in figures.held.items():
            yield f'llama_gateway_routed_blocks{{replica="{replica}",model_name="{_escaped(model)}"}} {blocks}\n'


def _escaped(name: str) -> str:
    """Return a name as the value of a label. That of a file may have any character."""
    return name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
