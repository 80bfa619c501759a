"""Settings of the KV cache."""

from pydantic import BaseModel, Field

from engine.config import EngineConfig, KVType

_ENGINE = EngineConfig(model="")


class KVCacheSettings(BaseModel):
    """Settings of the KV cache, of each model."""

    kv_type_k: KVType = Field(
        _ENGINE.kv_type_k,
        description="type of the keys in the KV cache: q8_0 takes about half the memory of f16, q4_0 about a quarter",
    )
    kv_type_v: KVType = Field(
        _ENGINE.kv_type_v,
        description="type of the values in the KV cache; all but f32, f16 and bf16 need flash attention",
    )
    kv_unified: bool = Field(
        _ENGINE.kv_unified,
        description="let all slots share the cells of the KV cache: a sequence may use those that others leave, and a "
        "common prefix takes memory once; slower while many sequences are long",
    )
