"""State of a model in lists of models, with llama-server's field names."""

from typing import Literal, NotRequired

from gateway.apis.answers.shapes import JsonObject


class ModelStatus(JsonObject):
    """State of a model. A model that could not be loaded has the reason."""

    value: Literal["unloaded", "loading", "loaded"]
    failed: NotRequired[Literal[True]]
    detail: NotRequired[str]


def model_status(state: Literal["unloaded", "loading", "loaded"], failure: str) -> ModelStatus:
    """Return the state of a model. `failure` is the reason why it could not be loaded, or empty."""
    return {"value": state, "failed": True, "detail": failure} if failure else {"value": state}
