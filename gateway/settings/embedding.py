"""Settings of models that compute embeddings or rank."""

from pydantic import BaseModel, Field

from engine.config import EngineConfig, PoolingType

_ENGINE = EngineConfig(model="")


class EmbeddingSettings(BaseModel):
    """Pooling of a whole text."""

    pooling: PoolingType | None = Field(
        _ENGINE.pooling,
        title="TYPE",
        description="use the model for embeddings, pooled by mean, cls or last, or to rank documents (rank), and not "
        "to generate text; default: as the model file says",
    )
