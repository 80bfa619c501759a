"""The loaded model of an engine."""

from engine import Engine, ModelInfo, Unavailable


def loaded_model(engine: Engine) -> ModelInfo:
    """Return the loaded model.

    Raises:
        Unavailable: no model is loaded yet.
    """
    if engine.model is None:
        raise Unavailable(engine.status.detail, code="engine_unavailable", retry_after=engine.seconds_to_ready)
    return engine.model
