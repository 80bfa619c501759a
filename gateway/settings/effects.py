"""Check that each setting that an operator has chosen has an effect."""

from gateway.settings.settings import Settings

_NEEDS = {
    "lora_apply": "lora",
    "prefix_dir_bytes": "prefix_dir",
    "control_vector_layer_range": "control_vector",
}
"""Settings of models, each with the one without which it has no effect."""


def check_effects(settings: Settings) -> None:
    """Check that no chosen setting lacks another one that it needs: of the flags for any model, of a table for its own.

    Raises:
        ValueError: one does.
    """
    served = {one.name: one.settings for one in settings.served}
    for name, needed in _NEEDS.items():
        message = f"{_flag(name)} needs {_flag(needed)}"
        chosen = name in settings.model_fields_set and getattr(settings, name)
        if chosen and not any(getattr(own, needed) for own in served.values()):
            raise ValueError(message)
        for model, table in settings.models.items():
            if table.own.get(name) and not getattr(served[model], needed):
                raise ValueError(f"models.{model}: {message}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
