"""Sampling of requests that do not choose it."""

from collections.abc import Mapping
from typing import Any

from engine import ModelInfo
from gateway.settings.sampling import recommended_sampling


class SamplingDefaults:
    """Values of fields of requests, and of their `sampling`, that clients do not set.

    The operator's choice comes first, then what the model's file recommends, then the defaults of the server whose
    command line was translated. Where none has a value, the API's default stays.
    """

    def __init__(self, chosen: Mapping[str, Any] | None = None, others: Mapping[str, Any] | None = None) -> None:
        """Take the operator's choice, and the defaults of another server."""
        self._chosen, self._others = chosen or {}, others or {}
        self._model: ModelInfo | None = None
        self._values: Mapping[str, Any] = {**self._others, **self._chosen}

    def for_model(self, model: ModelInfo | None) -> Mapping[str, Any]:
        """Return the values for a loaded model, by the names of the fields."""
        if model is not self._model:
            recommended = {} if model is None else recommended_sampling(model.sampling)
            self._model, self._values = model, {**self._others, **recommended, **self._chosen}
        return self._values
