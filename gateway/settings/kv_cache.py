"""Settings of the KV cache: its cells, a slot that is full, and prefixes on disk."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from engine.config import EngineConfig, KVType
from gateway.settings.values import for_engine

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


class ContextShiftSettings(BaseModel):
    """Treatment of a text whose slot is full."""

    context_shift: bool = Field(
        _ENGINE.context_shift,
        description="let a text go on when its slot is full: tokens behind the first ones are discarded; requests "
        "choose which by n_keep and n_discard",
    )


class PrefixFileSettings(BaseModel):
    """Settings of the prefixes on disk, for each model."""

    prefix_dir: Annotated[Path, AfterValidator(for_engine)] | None = Field(
        None,
        title="DIR",
        description="directory for cached prompts that outlive the engine; several models and servers may share it; "
        "default: none",
    )
    prefix_dir_bytes: int = Field(
        _ENGINE.prefix_dir_bytes,
        ge=1,
        le=2**60,
        title="BYTES",
        description="size of --prefix-dir; the least recently used files of any model are removed first",
    )
