"""Reports of one examination, as far as they could be made."""

from dataclasses import dataclass
from enum import StrEnum

from engine import CheckupError, EngineConfig, InstallationReport, RepackCache, ServingReport, embedded_model, examine


class Repacking(StrEnum):
    """Result of running weights that are repacked for this CPU."""

    WORKS = "works"
    CRASHES = "crashes"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Reports of one examination, as far as they could be made."""

    installation: InstallationReport | None
    """The machine and the build; unset if llama.cpp cannot even be started."""
    repacking: Repacking
    """Verdict on repacked weights."""
    serving: ServingReport | None
    """Plan for serving the model; unset without a model, or if it cannot be served."""
    failure: str
    """Reason why there is no report; empty if there is one of all that was asked for."""


def diagnose(config: EngineConfig | None) -> Diagnosis:
    """Examine this machine, and a model unless `config` is None. Takes some seconds. Remembers if repacking crashes."""
    tiny = EngineConfig(model=str(embedded_model()))
    try:
        installation = examine("installation", tiny, InstallationReport)
    except CheckupError as error:
        failure = f"llama.cpp cannot be used: {error}"
        return Diagnosis(installation=None, repacking=Repacking.UNKNOWN, serving=None, failure=failure)
    repacking = _repacking(tiny)
    serving, failure = None, ""
    if config is not None:
        try:
            serving = examine("serving", config, ServingReport)
        except CheckupError as error:
            failure = f"llama.cpp crashes on this model: {error}" if error.crashed else str(error)
    return Diagnosis(installation=installation, repacking=repacking, serving=serving, failure=failure)


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
