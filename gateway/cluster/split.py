"""Settings of the parts of a cluster: those of each model's replicas, and what a replica needs of its machine."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gateway.residency.estimate import estimate
from gateway.residency.memory import Memory
from gateway.settings import Settings
from gateway.settings.model import ModelSettings
from gateway.settings.table import ServedModel

INGRESS = "ingress"
"""Name of the deployment that takes all requests."""

_IGNORED = (
    "unix_socket",
    "metrics_port",
    "metrics_host",
    "tls_client_ca",
    "embedding_model",
    "idle_unload",
    "allow_pull",
    "prefix_secret",
)
"""Settings that have no effect in a cluster, and that an operator would miss."""
_NO_NAME = re.compile(r"[^\w.-]")


class ClusterSettingsError(ValueError):
    """The settings cannot be used in a cluster. The text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class ModelShare:
    """Settings and resources of one model's deployment."""

    name: str
    """Name of the deployment."""
    settings: Settings
    """Settings of each replica. They name only this model."""
    cpus: int
    """CPUs of a replica."""
    gpus: int
    """GPUs of a replica."""
    memory: int
    """Estimated bytes of host memory of a replica."""


def check_for_cluster(settings: Settings) -> None:
    """Check that no setting, of all models or of one, would be ignored, and that Ray's proxy can have the address.

    Raises:
        ClusterSettingsError: one would be.
    """
    if "," in settings.host:
        raise ClusterSettingsError("--host has one address in a cluster")
    of_models = [model.settings for model in settings.served]
    for name in _IGNORED:
        values = (getattr(one, name, None) for one in (settings, *of_models))
        if any(value is not None and value is not False for value in values):
            flag = "--" + name.replace("_", "-")
            reason = "name the model with --model NAME=MODEL" if name == "embedding_model" else "it is for one machine"
            raise ClusterSettingsError(f"{flag} has no effect in a cluster: {reason}")


def forgets_responses(settings: Settings) -> bool:
    """Return True if a request may meet a replica that does not have the stored response it refers to."""
    several = len(settings.served) > 1 or max(settings.replicas, settings.max_replicas or 1) > 1
    return several and settings.responses_store is None


def shares(settings: Settings, budget: Memory) -> dict[str, ModelShare]:
    """Return the deployments of the models, by the names of the models.

    Args:
        settings: name the models.
        budget: memory that the replicas of a machine may take, and by which a context that is left open is chosen.
    """
    return {model.name: _share(settings, model, budget) for model in settings.served}


def check_room(parts: Collection[ModelShare], replicas: int, *, memory: float, gpus: float) -> None:
    """Check that a machine has room for its replicas. Ray would wait for another machine.

    Args:
        parts: the deployments.
        replicas: replicas of each.
        memory: bytes that Ray has.
        gpus: GPUs that Ray has.

    Raises:
        ClusterSettingsError: it has not.
    """
    bytes_needed = replicas * sum(part.memory for part in parts)
    gpus_needed = replicas * sum(part.gpus for part in parts)
    if bytes_needed > memory:
        needed, there = (f"{size / 2**30:.2f} GiB of memory" for size in (bytes_needed, memory))
        raise ClusterSettingsError(f"the replicas need {needed}, and Ray has {there}: see --replicas and --context")
    if gpus_needed > gpus:
        advice = "see --replicas and --gpu-layers"
        raise ClusterSettingsError(f"the replicas need {gpus_needed} GPUs, and Ray has {gpus:g}: {advice}")


def replaced(settings: Settings, values: Mapping[str, object]) -> Settings:
    """Return the settings with other values, which have been checked already."""
    own = {name: getattr(settings, name) for name in Settings.model_fields}
    return Settings.model_construct(_fields_set=settings.model_fields_set | values.keys(), **own | dict(values))


def _share(settings: Settings, model: ServedModel, budget: Memory) -> ModelShare:
    own = {name: getattr(model.settings, name) for name in ModelSettings.model_fields}
    names: dict[str, object] = {
        "model": model.place,
        "alias": ",".join((model.name, *model.aliases)),
        "models": {},
        "models_dir": None,
    }
    alone = replaced(settings, own | names)
    alone.model_fields_set.difference_update(own.keys() - model.settings.model_fields_set)
    estimated = estimate(alone.engine_config(), budget)
    config = estimated.config
    alone = replaced(alone, {"context": config.context, "prefix_store": config.prefix_store})
    return ModelShare(
        deployment_name(model.name),
        alone,
        cpus=config.threads or 1,
        gpus=1 if estimated.need.gpu else 0,
        memory=estimated.need.host,
    )


def deployment_name(model: str) -> str:
    """Return the name of a model's deployment. Ray uses it in names of files."""
    return f"model-{_NO_NAME.sub('-', model)}"
