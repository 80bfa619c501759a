"""Settings of the models that are served, and those that all engine processes share."""

from collections import Counter
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from engine import embedded_model
from engine.config import EngineConfig
from gateway.settings.model import ModelSettings
from gateway.settings.table import FolderModel, ModelTable, ServedModel, models_in
from gateway.settings.values import (
    ModelPlace,
    check_model_name,
    has_hub,
    listed_folder,
    model_name,
    some_names,
    split_items,
)

_ENGINE = EngineConfig(model="")
_OF_THE_MAIN_MODEL: dict[str, object] = {
    "lora": (),
    "control_vector": (),
    "context_shift": False,
    "pooling": None,
    "override_tensor": (),
    **dict.fromkeys(name for name in ModelSettings.model_fields if name.startswith(("rope_", "yarn_"))),
}
"""Settings that are meant for a generating model, or for the tensors of one, and their values for another one."""


class EngineSettings(ModelSettings):
    """Settings of the models that are served, and those that all engine processes share."""

    model: ModelPlace = Field(
        embedded_model(),
        title="[NAME=]MODEL",
        description="GGUF model to serve: a file, or a model of the Hugging Face hub as hf:USER/REPO[:QUANT], which is "
        "downloaded; repeatable, each with a name: --model small=a.gguf --model large=b.gguf; default: the "
        "demonstration model inside this package",
    )
    offline: bool = Field(
        False,
        description="use only models of the hub that are on this machine already; without it they are used if the hub "
        "cannot be reached",
    )
    allow_pull: bool = Field(
        False,
        description="let clients download models of the hub with Ollama's /api/pull, which are then served on demand, "
        "also after a restart, and remove these with /api/delete; API keys with limits may not",
    )
    models_dir: Annotated[Path, AfterValidator(listed_folder)] | None = Field(
        None, title="DIR", description="folder whose GGUF files are models to serve, each under its file's name"
    )
    models: dict[Annotated[str, AfterValidator(check_model_name)], ModelTable] = Field(
        {}, description="tables of the TOML file: [models.NAME]"
    )
    models_memory: int | None = Field(
        None,
        ge=0,
        le=2**50,
        title="BYTES",
        description="host memory that all loaded models may take together, if there are several; default: four fifths "
        "of the memory that is available at the start",
    )
    models_gpu_memory: int | None = Field(
        None,
        ge=0,
        le=2**50,
        title="BYTES",
        description="GPU memory that all loaded models may take together, if there are several; default: nine tenths "
        "of the memory of NVIDIA's GPUs that is free at the start",
    )
    alias: Annotated[str, AfterValidator(some_names)] | None = Field(
        None,
        title="NAME",
        description="name of the model for clients, and further ones behind commas; default: that of the file, or of "
        "the repository on the hub",
    )
    embedding_model: ModelPlace | None = Field(
        None,
        title="MODEL",
        description="GGUF model for /v1/embeddings, in an engine process of its own: a file, or a model of the hub as "
        "in --model; default: the model of --model",
    )
    partition_cache: bool = Field(
        False,
        description="share cached prompts only between requests with the same API key, or without keys the same "
        "Authorization and x-api-key headers",
    )
    queue_limit: int = Field(
        _ENGINE.queue_limit,
        ge=1,
        le=100_000,
        title="N",
        description="requests that may wait for their first slot; further requests get status 429",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="lowest level that is logged")
    log_format: Literal["text", "json"] = Field("text", description="format of the log on standard error")

    @field_validator("allow_pull")
    @classmethod
    def _possible(cls, allow_pull: bool) -> bool:
        return allow_pull and has_hub()

    @model_validator(mode="after")
    def _unset_defaults(self, info: ValidationInfo) -> Self:
        """Count the values of settings that the context names, such as defaults of another server, as not set."""
        self.model_fields_set.difference_update(info.context or ())
        return self

    @model_validator(mode="after")
    def _together(self) -> Self:
        self.check()
        return self

    @model_validator(mode="after")
    def _distinct_names(self) -> Self:
        """Refuse models that a request could not tell apart, and a server without a model."""
        if not self.served:
            none = f"--models-dir {str(self.models_dir)!r}: there is no GGUF file in this folder"
            raise ValueError("; ".join(model.refusal for model in self.unserved) or none)
        if self.alias is not None and self.served[0].name != self.served_name:
            raise ValueError("--alias is for one --model FILE, and not for models with names")
        counts = Counter(name for model in self.served for name in model.chosen)
        if twice := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"several models have the name {twice[0]!r}")
        return self

    @property
    def on_demand(self) -> bool:
        """True if models are loaded when they are asked for: several, one that idleness unloads, those that join."""
        return bool(self.models) or self.models_dir is not None or self.idle_unload is not None or self.allow_pull

    @property
    def served_name(self) -> str:
        """Name of the model of `--model` for clients."""
        return self._names[0] if self.alias else model_name(self.model)

    @property
    def all_slots(self) -> int:
        """Number of the slots of all models."""
        return sum(model.settings.slots for model in self.served)

    @property
    def _names(self) -> list[str]:
        """Names in `alias`."""
        return split_items(self.alias or "")

    @property
    def serves_model(self) -> bool:
        """True if the model of `model` is served: it is set, or is the default and no other is named."""
        return "model" in self.model_fields_set or not (self.models or self.models_dir)

    @cached_property
    def served(self) -> tuple[ServedModel, ...]:
        """Models that the server serves. The first is the default of requests without a name."""
        models = []
        if self.serves_model:
            models.append(ServedModel(self.served_name, self.model, self.for_model(), tuple(self._names[1:])))
        for name, table in self.models.items():
            models.append(ServedModel(name, table.file, self._of_table(name, table), table.aliases))
        found = (model for model in self._of_folder if not model.fault)
        models += [ServedModel(model.name, model.file, self.for_model()) for model in found]
        if self.embedding_model is not None:
            name = model_name(self.embedding_model)
            name += "-embedding" if any(model.name == name for model in models) else ""
            alone = self.for_model(slots=1, context=None, **_OF_THE_MAIN_MODEL)
            models.append(ServedModel(name, self.embedding_model, alone, embeds_only=True))
        return tuple(models)

    def _of_table(self, name: str, table: ModelTable) -> ModelSettings:
        """Return the settings of a table and those that it lacks. Raises `ValueError` if they do not go together."""
        try:
            return self.for_model(**table.own)
        except ValueError as error:
            raise ValueError(f"models.{name}: {error}") from error

    @property
    def unserved(self) -> list[FolderModel]:
        """Models of `models_dir` that cannot be served."""
        return [model for model in self._of_folder if model.fault]

    @cached_property
    def _of_folder(self) -> tuple[FolderModel, ...]:
        """Models of `models_dir`, without those that another model of the same name replaces."""
        if self.models_dir is None:
            return ()
        taken = {*self.models, self.served_name} if self.serves_model else self.models.keys()
        return tuple(model for model in models_in(self.models_dir) if model.name not in taken)

    def joining(self, name: str, file: Path) -> ServedModel:
        """Return a model that joins while the server runs. It is loaded on demand."""
        return ServedModel(name, file, self.for_model(**_OF_THE_MAIN_MODEL, keep_loaded=False))

    def engine_config(self, served: ServedModel | None = None) -> EngineConfig:
        """Return the configuration of a model's engine process; None is the default model."""
        chosen = served or self.served[0]
        own = chosen.settings.config_of(str(chosen.place))
        return replace(
            own,
            queue_limit=self.queue_limit,
            log_level=self.log_level,
            log_format=self.log_format,
            log_name=chosen.name,
        )
