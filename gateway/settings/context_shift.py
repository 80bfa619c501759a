"""Settings of a full context."""

from pydantic import BaseModel, Field

from engine.config import EngineConfig

_ENGINE = EngineConfig(model="")


class ContextShiftSettings(BaseModel):
    """Treatment of a text whose slot is full."""

    context_shift: bool = Field(
        _ENGINE.context_shift,
        description="let a text go on when its slot is full: tokens behind the first ones are discarded; requests "
        "choose which by n_keep and n_discard",
    )
