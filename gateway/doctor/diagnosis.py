"""Reports of one examination, as far as they could be made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from engine import CheckupError, EngineConfig, InstallationReport, RepackCache, ServingReport, embedded_model, examine


class Repacking(StrEnum):
    """Result of running weights that are repacked for this CPU."""

    WORKS = "works"
    CRASHES = "crashes"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model to examine."""

    name: str
    """Name for clients."""
    config: EngineConfig
    """Configuration of its engine."""
    template: str | None = None
    """Chat template of the operator; unset takes the model's."""
    default_template: str | None = None
    """Chat template of the operator for a model that has none."""
    sets_context: bool = False
    """True if the operator has set the context. Otherwise memory decides on it."""
    embeds_only: bool = False
    """True for a model that does not generate here, though it may be able to."""
    refusal: str = ""
    """Reason why the gateway would not load it; empty if it would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDiagnosis:
    """Report of one model, as far as it could be made."""

    subject: Subject
    """The model."""
    serving: ServingReport | None
    """Plan for serving it; unset if it cannot be served."""
    failure: str
    """Reason why there is no plan; empty if there is one."""

    @property
    def template(self) -> str | None:
        """Chat template of the operator that chats of the model use; None if they use its own, or have none."""
        has_none = self.serving is not None and self.serving.model.chat_template is None
        return self.subject.template or (self.subject.default_template if has_none else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Reports of one examination, as far as they could be made."""

    installation: InstallationReport | None
    """The machine and the build; unset if llama.cpp cannot even be started."""
    repacking: Repacking
    """Verdict on repacked weights."""
    models: tuple[ModelDiagnosis, ...]
    """Reports of the models; none if llama.cpp cannot be started."""
    failure: str
    """Reason why llama.cpp cannot be used; empty if it can."""


def diagnose(subjects: Sequence[Subject]) -> Diagnosis:
    """Examine this machine and the models. Takes some seconds. Remembers if repacking crashes."""
    tiny = EngineConfig(model=str(embedded_model()))
    try:
        installation = examine("installation", tiny, InstallationReport)
    except CheckupError as error:
        failure = f"llama.cpp cannot be used: {error}"
        return Diagnosis(installation=None, repacking=Repacking.UNKNOWN, models=(), failure=failure)
    repacking = _repacking(tiny)
    models = tuple(_examined(subject) for subject in subjects)
    return Diagnosis(installation=installation, repacking=repacking, models=models, failure="")


def _examined(subject: Subject) -> ModelDiagnosis:
    if subject.refusal:
        return ModelDiagnosis(subject=subject, serving=None, failure=subject.refusal)
    try:
        serving = examine("serving", subject.config, ServingReport)
    except CheckupError as error:
        failure = f"llama.cpp crashes on this model: {error}" if error.crashed else str(error)
        return ModelDiagnosis(subject=subject, serving=None, failure=failure)
    if subject.embeds_only:
        serving = replace(serving, model=replace(serving.model, generates=False))
    return ModelDiagnosis(subject=subject, serving=serving, failure="")


def _repacking(config: EngineConfig) -> Repacking:
    """Try repacked weights. A crash is remembered for the starts of engines, and so is success."""
    try:
        examine("repacking", config, bool)
    except CheckupError as error:
        if not error.crashed:
            return Repacking.UNKNOWN
        RepackCache().record(works=False)
        return Repacking.CRASHES
    RepackCache().record(works=True)
    return Repacking.WORKS
