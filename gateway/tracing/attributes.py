"""Attributes of spans, by OpenTelemetry's conventions for HTTP and for generative AI.

None of them is text of a client, except the path and the id of the request.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TypeAlias

from engine import Sampling
from gateway.middleware.exchange import Exchange
from gateway.serving.records import Outcome, RequestRecord

Attributes: TypeAlias = Mapping[str, str | int | float | bool | tuple[str, ...]]

PROVIDER = "llama.cpp"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
OTHER_METHOD = "_OTHER"


def span_name(exchange: Exchange, record: RequestRecord | None) -> str:
    """Return `{operation} {model}` if a model was asked for, else the method and the route, if there is one."""
    if record is not None:
        return f"{record.operation} {record.model}"
    return f"{method_of(exchange)} {exchange.route}".rstrip()


def method_of(exchange: Exchange) -> str:
    """Return the method, or `_OTHER` for one that HTTP does not define."""
    return exchange.method if exchange.method in METHODS else OTHER_METHOD


def first_attributes(exchange: Exchange) -> Attributes:
    """Return the attributes that a sampler gets."""
    found = {"http.request.method": method_of(exchange), "url.path": exchange.path, "url.scheme": exchange.scheme}
    return found | ({"client.address": exchange.address} if exchange.address else {})


def exchange_attributes(exchange: Exchange) -> Attributes:
    """Return the attributes of an exchange that has ended."""
    found: dict[str, str | int] = {
        "http.request.body.size": exchange.received,
        "http.response.body.size": exchange.sent,
        "llama_gateway.request.id": exchange.request_id,
        "llama_gateway.outcome": exchange.outcome,
    }
    if exchange.route:
        found["http.route"] = exchange.route
    if exchange.status is not None:
        found["http.response.status_code"] = exchange.status
    if exchange.key:
        found["llama_gateway.key.id"] = exchange.key
    if exchange.error:
        found["error.type"] = exchange.error
    return found


def record_attributes(record: RequestRecord) -> Attributes:
    """Return the attributes of a request for a model that has ended."""
    found: dict[str, str | int | float | bool | tuple[str, ...]] = {
        "gen_ai.operation.name": record.operation,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
        "llama_gateway.phase": record.phase,
        "llama_gateway.tokens.wasted": record.wasted_tokens,
        **_generation_attributes(record),
    }
    if record.outcome is not None:
        found["llama_gateway.outcome"] = record.outcome.value
    if record.cause:
        found["llama_gateway.cause"] = record.cause
        found["error.type"] = record.cause
    if record.release_seconds is not None:
        found["llama_gateway.release_seconds"] = record.release_seconds
    return found


def _generation_attributes(record: RequestRecord) -> Attributes:
    if record.sampling is None:
        return {}
    found: dict[str, str | int | float | bool | tuple[str, ...]] = {
        "gen_ai.request.stream": record.stream,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "llama_gateway.tokens.drafted": record.drafted_tokens,
        "llama_gateway.tokens.draft_accepted": record.accepted_draft_tokens,
        **_sampling_attributes(record.sampling),
    }
    if record.max_tokens is not None:
        found["gen_ai.request.max_tokens"] = record.max_tokens
    if record.choices != 1:
        found["gen_ai.request.choice.count"] = record.choices
    if record.finish_reasons:
        found["gen_ai.response.finish_reasons"] = record.finish_reasons
    if record.stream and record.first_token_at is not None:
        found["gen_ai.response.time_to_first_chunk"] = record.first_token_at - record.arrived_at
    return found


def _sampling_attributes(sampling: Sampling) -> Attributes:
    found = {
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
        "gen_ai.request.presence_penalty": sampling.presence_penalty,
    }
    return found if sampling.seed is None else {**found, "gen_ai.request.seed": sampling.seed}


def has_failed(exchange: Exchange, record: RequestRecord | None) -> bool:
    """Return True if the server is at fault: a status of 500 or more, or a failure after the head."""
    if record is not None and record.outcome is Outcome.FAILED:
        return True
    return exchange.outcome == Outcome.FAILED or (exchange.status or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR
