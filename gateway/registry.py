"""Registry of the models that the settings name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine import Engine
from gateway.chat.reasoning import ReasoningDefaults
from gateway.chat.template_key import TemplateDefaults
from gateway.limits.limiter import Limiter
from gateway.preparation.preparer import Preparer
from gateway.serving.adapters import Adapter
from gateway.serving.generations import Generations, GenerationTerms
from gateway.serving.model import Labels, Model, Serve
from gateway.serving.models import Models
from gateway.serving.prefixes import HeldPrefixes, PromptLabels
from gateway.serving.prompts import ChatPrompts
from gateway.serving.recorder import Recorder
from gateway.serving.records import RecordObserver
from gateway.serving.sampling_defaults import SamplingDefaults
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
    prefixes: HeldPrefixes | None = None
    """Reports the prefixes that the engines hold, if it is given."""


def create_models(engines: Mapping[str, EngineSource], settings: Settings, serving: Serving) -> Models:
    """Return the registry of the models that the settings name. `engines` has the sources of their engines by name."""
    chosen = {name for one in settings.served for name in (one.name, *one.aliases)}

    def model(one: ServedModel) -> Model:
        names = one.names - (chosen - {one.name, *one.aliases})  # the name of a model comes before a file's name
        return create_model(one, engines[one.name], names, settings, serving)

    models = [model(one) for one in settings.served]
    pairs = ((one, adapter) for one in models for adapter in one.adapters.all)
    adapted = [one.adapted(adapter, _serve_adapted(one, adapter, serving)) for one, adapter in pairs]
    embeds = next((at for at, one in enumerate(settings.served) if one.embeds_only), 0)
    ranks = next((at for at, one in enumerate(settings.served) if one.settings.pooling == "rank"), 0)
    defaults = {**dict.fromkeys(Task, models[0]), Task.EMBED: models[embeds], Task.RANK: models[ranks]}
    return Models(models, defaults, adapted, any_name=_takes_any_name(settings))


def create_model(
    one: ServedModel, source: EngineSource, names: Iterable[str], settings: Settings, serving: Serving
) -> Model:
    """Return one model with the source of its engine, and the names that requests may use."""
    tasks = _EMBEDS_ONLY if one.embeds_only else set(Task)
    adapters = [
        Adapter(id_, *adapter, applied=one.settings.lora_apply) for id_, adapter in enumerate(one.settings.adapters)
    ]
    labels = Labels((one.name, *one.aliases), one.settings.tags)
    prompt_labels = None if serving.prefixes is None else serving.prefixes.add(one.name, lambda: source.engine)
    serve = _serve(one, settings, serving, prompt_labels)
    return Model(source, one.name, one.place, names, tasks, serve, adapters, labels)


def _takes_any_name(settings: Settings) -> bool:
    """Return whether requests may use any name for the model, as they may with llama-server if it has only one."""
    alone = settings.serves_model and all(one.embeds_only for one in settings.served[1:])
    return alone and settings.answers_like == "llama-server"


def _serve(one: ServedModel, settings: Settings, serving: Serving, labels: PromptLabels | None) -> Serve:
    """Return the function that makes what requests need of a model with its engine."""

    def serve(model: Model, engine: Engine) -> Served:
        own, recorder = one.settings, Recorder(model.name, serving.observers)
        return Served(
            engine,
            model.name,
            lambda: model.fingerprint,
            prompts=ChatPrompts(
                engine,
                own.chat_template,
                serving.preparer,
                fallback=own.default_chat_template,
                defaults=TemplateDefaults(
                    own.parse_special,
                    own.chat_template_kwargs,
                    dated=settings.answers_like == "llama-server",
                    reasoning=ReasoningDefaults(own.reasoning_budget, own.reasoning_budget_message or ""),
                ),
                needed=not one.embeds_only,
            ),
            generations=Generations(
                engine,
                recorder,
                serving.limiter,
                terms=GenerationTerms(
                    max_tokens=own.max_tokens,
                    queue_timeout=settings.queue_timeout,
                    patience=settings.client_patience,
                    stream_interval=settings.stream_interval_ms / 1000,
                    defaults=SamplingDefaults(own.chosen_sampling, own.other_sampling),
                ),
                adapters=model.adapters.chosen,
                labels=labels,
            ),
            recorder=recorder,
            limiter=serving.limiter,
        )

    return serve


def _serve_adapted(parent: Model, adapter: Adapter, serving: Serving) -> Serve:
    """Return the function that makes what requests need of a model with a LoRA adapter."""

    def serve(model: Model, engine: Engine) -> Served:
        recorder = Recorder(model.name, serving.observers)
        return parent.with_engine(engine).adapted(model.name, lambda: model.fingerprint, adapter.chosen, recorder)

    return serve
