"""Models of the server, each with a name, a file and settings of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from engine.gguf.contents import other_content
from engine.gguf.split_file import SplitFile, parts_of
from gateway.hub.reference import HubReference
from gateway.settings.adapters import adapted_name
from gateway.settings.model import ModelSettings
from gateway.settings.values import ModelPlace, model_names, readable_parts

_PROJECTOR = "mmproj"
"""Part of the names of files that extend a model by images, and are none themselves."""


class ModelTable(ModelSettings):
    """Table of one model in the TOML file. Settings that it lacks are those of the flags."""

    file: ModelPlace
    """GGUF file of the model, or its name on the hub."""
    aliases: Annotated[tuple[str, ...], BeforeValidator(model_names)] = Field(())
    """Further names of the model."""

    @property
    def own(self) -> dict[str, Any]:
        """Settings that the table has, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set & ModelSettings.model_fields.keys()}


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model that the server serves."""

    name: str
    """Name for clients."""
    place: Path | HubReference
    """GGUF file, of a split model its first part; or the model's name on the hub."""
    settings: ModelSettings
    """Settings of the model."""
    aliases: tuple[str, ...] = ()
    """Further names for clients."""
    embeds_only: bool = False
    """True for the model of `--embedding-model`."""

    @property
    def chosen(self) -> set[str]:
        """Names that the operator has chosen: those of the model, and of the model with each LoRA adapter."""
        own = {self.name, *self.aliases}
        return own | {adapted_name(name, adapter.name) for name in own for adapter in self.settings.adapters}

    @property
    def names(self) -> set[str]:
        """All names that requests may use."""
        place = self.place
        if isinstance(place, HubReference):
            return {self.name, *self.aliases, place.name, *place.names}
        return {self.name, *self.aliases, place.stem, place.name}


@dataclass(frozen=True, slots=True)
class FolderModel:
    """One model in the folder of `--models-dir`."""

    name: str
    """Name for clients: that of its file."""
    file: Path
    """GGUF file, of a split model its first part."""
    fault: str = ""
    """Reason why it cannot be served; empty if it can."""

    @property
    def refusal(self) -> str:
        """The fault as one line that names the file."""
        return f"--models-dir {str(self.file)!r}: {self.fault}"


def models_in(folder: Path) -> Iterator[FolderModel]:
    """Yield the models in a folder, by the names of their files. A split file is its first part, even a missing one.

    Only the first of several files can be served under the same name.
    """
    served: dict[str, str] = {}
    for path in sorted({folder / parts_of(path.name)[0] for path in folder.glob("*.gguf")}):
        if _PROJECTOR in path.name.lower():
            continue
        split = SplitFile.parse(path.name)
        name = split.stem if split else path.stem
        fault = _fault(path)
        if not fault and (other := served.setdefault(name, path.name)) != path.name:
            fault = f"{other} is served as {name}, and not {path.name}"
        yield FolderModel(name, path, fault)


def _fault(path: Path) -> str:
    """Return the reason why a model cannot be served; empty if it can."""
    try:
        readable_parts(path)
    except ValueError as error:
        return str(error)
    other = other_content(path)
    return f"this is {other}" if other else ""
