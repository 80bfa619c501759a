"""Settings of LoRA adapters and control vectors."""

import math
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from gateway.settings.values import expanded, readable_gguf, split_items

_LAYERS = re.compile(r"([1-9][0-9]{0,5})[-, ]([1-9][0-9]{0,5})")


class AdapterFile(NamedTuple):
    """A LoRA adapter or a control vector: its name, its file and its scale."""

    name: str
    """Name for clients; by default that of the file."""
    file: Path
    """GGUF file."""
    scale: float
    """Scale that is used if no other is chosen."""


def adapter_file(text: str) -> AdapterFile:
    """Return the parts of `[NAME=]FILE[:SCALE]`. A name has no slash, and a scale is a number."""
    name, equals, rest = text.partition("=")
    if not equals or "/" in name:
        name, rest = "", text
    path, _, scale = rest.rpartition(":")
    if not path or not _is_number(scale):
        path, scale = rest, "1"
    return AdapterFile(name or Path(path).stem, expanded(Path(path)), float(scale))


def adapted_name(model: str, adapter: str) -> str:
    """Return the name of a model with a LoRA adapter."""
    return f"{model}:{adapter}"


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def _readable(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        try:
            readable_gguf(adapter_file(text).file)
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}") from error
    return texts


def _named_once(texts: tuple[str, ...]) -> tuple[str, ...]:
    for name, times in Counter(adapter_file(text).name for text in texts).items():
        if times > 1:
            raise ValueError(f"{times} adapters have the name {name!r}; NAME=FILE gives another one")
    return texts


def _layers(text: str) -> str:
    found = _LAYERS.fullmatch(text)
    if not found or int(found[1]) > int(found[2]):
        raise ValueError("should be the first and the last layer, such as 10 20")
    return text


class AdapterSettings(BaseModel):
    """Settings of LoRA adapters and control vectors, of each model."""

    lora: Annotated[
        tuple[str, ...], AfterValidator(_named_once), AfterValidator(_readable), BeforeValidator(split_items)
    ] = Field(
        (),
        title="[NAME=]FILE[:SCALE]",
        description="LoRA adapter in GGUF format, which requests choose as the model MODEL:NAME; repeatable, or "
        "separated by commas; default: no adapter, the file's name, scale 1",
    )
    lora_apply: bool = Field(
        False,
        description="apply all LoRA adapters with their scales to requests that choose none, as llama-server does",
    )
    control_vector: Annotated[tuple[str, ...], AfterValidator(_readable), BeforeValidator(split_items)] = Field(
        (),
        title="FILE[:SCALE]",
        description="control vector in GGUF format, which is added to the model; repeatable, or separated by commas",
    )
    control_vector_layer_range: Annotated[str, AfterValidator(_layers)] | None = Field(
        None,
        title="FIRST LAST",
        description="first and last layer to which control vectors are added, from 1; default: all layers",
    )

    @property
    def adapters(self) -> tuple[AdapterFile, ...]:
        """The LoRA adapters in the order of their ids."""
        return tuple(map(adapter_file, self.lora))

    @property
    def control_vectors(self) -> tuple[tuple[str, float], ...]:
        """Path and scale of each control vector."""
        return tuple((str(vector.file), vector.scale) for vector in map(adapter_file, self.control_vector))

    @property
    def control_vector_layers(self) -> tuple[int, int] | None:
        """First and last layer to which control vectors are added; None for all layers."""
        found = _LAYERS.fullmatch(self.control_vector_layer_range or "")
        return (int(found[1]), int(found[2])) if found else None
