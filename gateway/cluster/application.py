"""The application of Ray Serve: `serve run gateway.cluster.application:build model=FILE.gguf`."""

import logging
import os
import secrets
from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig
from ray.serve.schema import LoggingConfig

from gateway.cli import read_settings
from gateway.cluster import scaling
from gateway.cluster.arguments import flags_of
from gateway.cluster.ingress.deployment import IngressReplica
from gateway.cluster.ingress.router import ReplicaRouter
from gateway.cluster.replica import ModelReplica
from gateway.cluster.request import RESERVED
from gateway.cluster.split import (
    INGRESS,
    ClusterSettingsError,
    ModelShare,
    check_for_cluster,
    forgets_responses,
    replaced,
    shares,
)
from gateway.residency.machine import machine_budget
from gateway.settings import Settings

logger = logging.getLogger("gateway")

REPORT_PERIOD = 0.5
"""Seconds between two reports of a replica to the routers."""
SHUTDOWN_MARGIN = 10.0
"""Seconds after the grace period in which a replica closes its engine."""
UPSCALE_DELAY, DOWNSCALE_DELAY, LOOK_BACK = 5.0, 120.0, 15.0
"""Seconds for which a load must last until replicas are added or removed, and over which it is averaged."""
HEALTH_PERIOD, HEALTH_TIMEOUT = 5.0, 10.0
"""Seconds between two health checks, and those that one may take."""
SECRET_BYTES = 16
"""Bytes of the secret without which hashes of prompts cannot be guessed from prompts."""
_OF_THE_PROXY = {"host": "host", "port": "port", "tls_certificate": "ssl_certfile", "tls_key": "ssl_keyfile"}
"""Options of Ray's proxy for settings that have no effect in an application, by the names of the settings."""
MOST_FORWARDED = 10_000
"""Requests that one ingress may have at the same time. The models' own limits are lower."""


def build(args: Mapping[str, Any]) -> serve.Application:
    """Return the application for `serve run` and `serve deploy`.

    Args:
        args: settings by the names of their flags, such as `{"model": "a.gguf", "slots": 8}`, and `config`, a TOML
            file. `LLAMA_GATEWAY_…` variables count, too.

    Raises:
        SettingsError: a setting is invalid.
        ClusterSettingsError: a setting has no effect in a cluster.
    """
    settings = read_settings(["serve", *flags_of(args)], os.environ)
    for model in settings.unserved:
        logger.warning("not served: %s", model.refusal)
    for name, option in _OF_THE_PROXY.items():
        if name in settings.model_fields_set:
            raise ClusterSettingsError(
                f"--{name.replace('_', '-')} has no effect here: Ray's proxy has it, as {option} in http_options"
            )
    return application(settings, parts_of(settings))


def parts_of(settings: Settings) -> dict[str, ModelShare]:
    """Return the deployments of the models, by the names of the models, for machines like this one.

    Raises:
        ClusterSettingsError: a setting has no effect in a cluster.
    """
    check_for_cluster(settings)
    return shares(settings, machine_budget(settings.models_memory, settings.models_gpu_memory))


def application(settings: Settings, parts: Mapping[str, ModelShare]) -> serve.Application:
    """Return the application for some settings.

    Args:
        settings: name all models.
        parts: deployments of the models.
    """
    if forgets_responses(settings):
        logger.warning("stored responses and conversations are those of one replica: --responses-store shares them")
    secret = secrets.token_bytes(SECRET_BYTES)  # of one application: an update replaces all of its parts
    models = {name: _model(share, secret) for name, share in parts.items()}
    ingress = serve.deployment(
        name=INGRESS,
        max_ongoing_requests=MOST_FORWARDED,
        max_surge_percent=100,  # it takes no CPU, so that the new one can start before the old one stops
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=settings.request_timeout + SHUTDOWN_MARGIN,  # requests may run again elsewhere
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=HEALTH_PERIOD,
        health_check_timeout_s=HEALTH_TIMEOUT,
    )(IngressReplica)
    return ingress.bind(settings, models, secret)


def _model(share: ModelShare, secret: bytes) -> serve.Application:
    settings = share.settings
    deployment = serve.deployment(
        name=share.name,
        max_ongoing_requests=settings.slots + settings.queue_limit + RESERVED,
        ray_actor_options={"num_cpus": share.cpus, "num_gpus": share.gpus, "memory": share.memory},
        graceful_shutdown_timeout_s=settings.grace + SHUTDOWN_MARGIN,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=HEALTH_PERIOD,
        health_check_timeout_s=HEALTH_TIMEOUT,
        request_router_config=RequestRouterConfig(
            request_router_class=f"{ReplicaRouter.__module__}.{ReplicaRouter.__name__}",
            request_routing_stats_period_s=REPORT_PERIOD,
        ),
        logging_config=LoggingConfig(enable_access_log=False),  # the gateway has its own; and ingresses ask often
        **_replicas(settings),
    )
    # A burst, and routers that do not know of each other, may also use the reserved places. Then requests wait in the
    # replica.
    own = replaced(settings, {"queue_limit": settings.queue_limit + RESERVED})
    return deployment(ModelReplica).bind(own, secret)


def _replicas(settings: Settings) -> dict[str, Any]:
    """Return the options of the number of replicas."""
    if settings.max_replicas in {None, settings.replicas}:
        return {"num_replicas": settings.replicas}
    autoscaling = AutoscalingConfig(
        min_replicas=settings.replicas,
        max_replicas=settings.max_replicas,
        target_ongoing_requests=settings.slots,
        upscale_delay_s=UPSCALE_DELAY,
        downscale_delay_s=DOWNSCALE_DELAY,
        look_back_period_s=LOOK_BACK,
        policy=AutoscalingPolicy(policy_function=f"{scaling.__name__}:{scaling.policy.__name__}"),
    )
    return {"autoscaling_config": autoscaling}
