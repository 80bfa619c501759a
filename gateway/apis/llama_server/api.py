"""The API of llama-server's own routes."""

from gateway.apis.endpoint import Api
from gateway.apis.llama_server.apply_template import apply_template_endpoints
from gateway.apis.llama_server.completion.endpoint import native_completion_endpoints
from gateway.apis.llama_server.control import control_endpoints
from gateway.apis.llama_server.embeddings.endpoint import native_embeddings_endpoints
from gateway.apis.llama_server.errors import LlamaServerErrorAnswer, encode_error
from gateway.apis.llama_server.health import HealthEndpoints, health_endpoints
from gateway.apis.llama_server.infill.endpoint import infill_endpoints
from gateway.apis.llama_server.lora_adapters import lora_adapters_endpoints
from gateway.apis.llama_server.metrics import MetricsEndpoints, metrics_endpoints
from gateway.apis.llama_server.models import router_endpoints
from gateway.apis.llama_server.openai.endpoints import aliases
from gateway.apis.llama_server.options import RouteOptions
from gateway.apis.llama_server.prefixes import prefix_endpoints
from gateway.apis.llama_server.props import props_endpoints
from gateway.apis.llama_server.slots.actions import slot_actions_endpoints
from gateway.apis.llama_server.slots.listing import slots_endpoints
from gateway.apis.llama_server.streams import streams_endpoints
from gateway.apis.llama_server.tokenize.endpoint import tokenize_endpoints
from gateway.apis.llama_server.tokenize.tokenizer_info import tokenizer_info_endpoints
from gateway.middleware.streams.resumable import ResumableStreams
from gateway.serving.models import Models
from gateway.serving.prefixes import HeldPrefixes


def llama_server_api(
    models: Models,
    health: HealthEndpoints,
    metrics: MetricsEndpoints | None,
    openai: Api,
    streams: ResumableStreams,
    options: RouteOptions,
    prefixes: HeldPrefixes | None,
) -> Api:
    """Return llama-server's routes, without `/metrics` if None. Those of OpenAI's are aliases of `openai`.

    Without a port for metrics, `/prefixes` is here, too.
    """
    endpoints = (
        *native_completion_endpoints(models),
        *infill_endpoints(models),
        *aliases(openai),
        *control_endpoints(models),
        *native_embeddings_endpoints(models),
        *apply_template_endpoints(models),
        *tokenize_endpoints(models),
        *tokenizer_info_endpoints(models),
        *health_endpoints(health),
        *slots_endpoints(models, options),
        *slot_actions_endpoints(models, options),
        *props_endpoints(models, options, metrics=metrics is not None),
        *lora_adapters_endpoints(models),
        *streams_endpoints(streams),
        *router_endpoints(models),
        *((*metrics_endpoints(metrics), *prefix_endpoints(prefixes)) if metrics else ()),
    )
    return Api(endpoints, encode_error, LlamaServerErrorAnswer)


def metrics_api(metrics: MetricsEndpoints, prefixes: HeldPrefixes | None) -> Api:
    """Return the routes of a port for metrics alone, and for the reports of held prefixes."""
    return Api((*metrics_endpoints(metrics), *prefix_endpoints(prefixes)), encode_error, LlamaServerErrorAnswer)
