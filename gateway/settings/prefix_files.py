"""Settings of the prefixes on disk."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from engine.config import EngineConfig
from gateway.settings.values import expanded

_ENGINE = EngineConfig(model="")


def _directory(path: Path) -> Path:
    """Return a path that the engine's configuration can hold."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ValueError("the path is not UTF-8") from error
    return expanded(path)


class PrefixFileSettings(BaseModel):
    """Settings of the prefixes on disk, for each model."""

    prefix_dir: Annotated[Path, AfterValidator(_directory)] | None = Field(
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
