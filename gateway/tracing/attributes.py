"""Attributes of spans, by OpenTelemetry's conventions for HTTP and for generative AI.

None of them is text of a client, except the path and the id of the request.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TypeAlias

from engine import Sampling
from gateway.middleware.exchange import Exchange
from gateway.serving.records import Outcome, RequestRecord

_Value: TypeAlias = str | int | float | bool | tuple[str, ...]
Attributes: TypeAlias = Mapping[str, _Value]
_Attributes: TypeAlias = Mapping[str, _Value | None]

PROVIDER = "llama.cpp"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
OTHER_METHOD = "_OTHER"


def span_name(exchange: Exchange, record: RequestRecord | None) -> str:
    """Return `{operation} {model}` if a model was asked for, else the method and the route, if there is one.

    A method that HTTP does not define is `HTTP`.
    """
    if record is not None:
        return f"{record.operation} {record.model}"
    method = exchange.method if exchange.method in METHODS else "HTTP"
    return f"{method} {exchange.route}".rstrip()


def method_of(exchange: Exchange) -> str:
    """Return the method, or `_OTHER` for one that HTTP does not define."""
    return exchange.method if exchange.method in METHODS else OTHER_METHOD


def first_attributes(exchange: Exchange) -> Attributes:
    """Return the attributes that a sampler gets."""
    return _known(
        {
            "http.request.method": method_of(exchange),
            "url.path": exchange.path,
            "url.scheme": exchange.scheme,
            "client.address": exchange.address or None,
        }
    )


def exchange_attributes(exchange: Exchange) -> Attributes:
    """Return the attributes of an exchange that has ended."""
    return _known(
        {
            "http.request.body.size": exchange.received,
            "http.response.body.size": exchange.sent,
            "http.route": exchange.route or None,
            "http.response.status_code": exchange.status,
            "llama_gateway.request.id": exchange.request_id,
            "llama_gateway.outcome": exchange.outcome,
            "llama_gateway.key.id": exchange.key or None,
            "error.type": exchange.error or None,
        }
    )


def record_attributes(record: RequestRecord) -> Attributes:
    """Return the attributes of a request for a model that has ended."""
    return _known(
        {
            "gen_ai.operation.name": record.operation,
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": record.model,
            "gen_ai.response.model": record.model,
            "gen_ai.usage.input_tokens": record.prompt_tokens,
            "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
            "llama_gateway.phase": record.phase,
            "llama_gateway.tokens.wasted": record.wasted_tokens,
            "llama_gateway.outcome": record.outcome,
            "llama_gateway.cause": record.cause or None,
            "error.type": record.cause or None,
            "llama_gateway.release_seconds": record.release_seconds,
            **({} if record.sampling is None else _generation_attributes(record, record.sampling)),
        }
    )


def _generation_attributes(record: RequestRecord, sampling: Sampling) -> _Attributes:
    first = record.first_token_at if record.stream else None
    return {
        "gen_ai.request.stream": record.stream,
        "gen_ai.request.max_tokens": record.max_tokens,
        "gen_ai.request.choice.count": record.choices if record.choices != 1 else None,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
        "gen_ai.request.presence_penalty": sampling.presence_penalty,
        "gen_ai.request.seed": sampling.seed,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "gen_ai.response.finish_reasons": record.finish_reasons or None,
        "gen_ai.response.time_to_first_chunk": None if first is None else first - record.arrived_at,
        "llama_gateway.tokens.drafted": record.drafted_tokens,
        "llama_gateway.tokens.draft_accepted": record.accepted_draft_tokens,
    }


def _known(found: _Attributes) -> Attributes:
    """Return the attributes that have a value."""
    return {name: value for name, value in found.items() if value is not None}


def has_failed(exchange: Exchange, record: RequestRecord | None) -> bool:
    """Return True if the server is at fault: a status of 500 or more, or a failure after the head."""
    if record is not None and record.outcome is Outcome.FAILED:
        return True
    return exchange.outcome == Outcome.FAILED or (exchange.status or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR
