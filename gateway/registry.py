"""Registry of the models that the settings name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine import Engine
from gateway.limits.limiter import Limiter
from gateway.preparation.preparer import Preparer
from gateway.serving.generations import Generations
from gateway.serving.model import Model, Serve
from gateway.serving.models import Models
from gateway.serving.prompts import ChatPrompts
from gateway.serving.recorder import Recorder
from gateway.serving.records import RecordObserver
from gateway.serving.served import Served, Task
from gateway.serving.sources import EngineSource
from gateway.settings import Settings
from gateway.settings.table import ServedModel

_EMBEDS_ONLY = {Task.EMBED, Task.TOKENIZE}


@dataclass(frozen=True, slots=True)
class Serving:
    """Parts that the requests to all models share."""

    preparer: Preparer
    """Prepares requests."""
    observers: Sequence[RecordObserver]
    """Observers of the records of all requests."""
    limiter: Limiter
    """Limits of all keys."""


def create_models(engines: Mapping[str, EngineSource], settings: Settings, serving: Serving) -> Models:
    """Return the registry of the models that the settings name. `engines` has the sources of their engines by name."""
    chosen = {name for one in settings.served for name in (one.name, *one.aliases)}

    def model(one: ServedModel) -> Model:
        names = one.names - (chosen - {one.name, *one.aliases})  # the name of a model comes before a file's name
        tasks = _EMBEDS_ONLY if one.embeds_only else set(Task)
        return Model(engines[one.name], one.name, one.file, names, tasks, _serve(one, settings, serving))

    models = [model(one) for one in settings.served]
    embeds = next((at for at, one in enumerate(settings.served) if one.embeds_only), 0)
    return Models(models, {**dict.fromkeys(Task, models[0]), Task.EMBED: models[embeds]})


def _serve(one: ServedModel, settings: Settings, serving: Serving) -> Serve:
    """Return the function that makes what requests need of a model with its engine."""

    def serve(model: Model, engine: Engine) -> Served:
        own, recorder = one.settings, Recorder(model.name, serving.observers)
        return Served(
            engine,
            model.name,
            model.fingerprint,
            prompts=ChatPrompts(engine, own.chat_template, serving.preparer, parse_special=own.parse_special),
            generations=Generations(
                engine,
                recorder,
                serving.limiter,
                max_tokens=own.max_tokens,
                queue_timeout=settings.queue_timeout,
                patience=settings.client_patience,
            ),
            recorder=recorder,
            limiter=serving.limiter,
        )

    return serve
