"""Settings that each model may have for itself."""

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from engine.config import EngineConfig
from gateway.settings.adapters import AdapterSettings
from gateway.settings.embedding import EmbeddingSettings
from gateway.settings.hardware import HardwareSettings
from gateway.settings.kv_cache import ContextShiftSettings, KVCacheSettings, PrefixFileSettings
from gateway.settings.reasoning import ReasoningSettings
from gateway.settings.sampling import SamplingSettings
from gateway.settings.values import byte_count, readable_template, split_items, template_variables

_ENGINE = EngineConfig(model="")
_NUMERIC = (int, float, int | None, float | None)
_PATHS = {"DIR", "FILE", "PATH"}
"""Titles of settings that are paths."""


class ModelSettings(
    HardwareSettings,
    KVCacheSettings,
    AdapterSettings,
    ContextShiftSettings,
    EmbeddingSettings,
    PrefixFileSettings,
    ReasoningSettings,
    SamplingSettings,
):
    """Settings that each model may have for itself. Flags set them for all models, a table of the TOML file for one."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    chat_template: Annotated[str, AfterValidator(readable_template)] | None = Field(
        None,
        title="FILE",
        description="Jinja chat template: a file, the template itself, or chatml, command-r, llama3, phi3 or zephyr; "
        "default: the one in the model file",
    )
    default_chat_template: Annotated[str, AfterValidator(readable_template)] | None = Field(
        None, title="FILE", description="chat template for a model whose file has none, in the forms of --chat-template"
    )
    chat_template_kwargs: Annotated[str, AfterValidator(template_variables)] = Field(
        "{}",
        title="JSON",
        description='variables of the chat template that requests may replace, such as {"enable_thinking": false}',
    )
    parse_special: bool = Field(
        False,
        description="let names of control tokens in the texts of chats become these tokens; requests may override it",
    )
    slots: int = Field(_ENGINE.slots, ge=1, le=256, title="N", description="sequences that run at the same time")
    context: int | None = Field(
        _ENGINE.context,
        ge=1,
        le=2**31 - 1,
        title="TOKENS",
        description="tokens per slot; default: the model's training context, limited by memory",
    )
    threads: int | None = Field(
        _ENGINE.threads,
        ge=1,
        le=1024,
        title="N",
        description="CPU threads of a pass; default: as many as are measured to be fastest",
    )
    threads_batch: int | None = Field(
        _ENGINE.threads_batch,
        ge=1,
        le=1024,
        title="N",
        description="CPU threads of a pass with several rows; default: same as --threads",
    )
    gpu_layers: int = Field(
        _ENGINE.gpu_layers, ge=-1, le=2**31 - 1, title="N", description="layers to offload to the GPU; -1 offloads all"
    )
    repack: Literal["auto", "on", "off"] = Field(
        "auto",
        description="rearrange the weights for this CPU: takes memory and a longer start, and makes passes faster or "
        "slower",
    )
    flash_attention: Literal["auto", "on", "off"] = Field(
        "auto",
        description="compute attention in blocks (flash attention); off may be faster if contexts are long",
    )
    backend_sampling: Literal["auto", "on", "off"] = Field(
        "auto",
        description="let the device of the output layer select the best tokens, for greedy sampling and top_k: auto "
        "does on a GPU where it is measured to be faster",
    )
    step_target_ms: float = Field(
        _ENGINE.step_target_ms,
        gt=0,
        le=60_000,
        title="MS",
        description="milliseconds that one prompt pass may delay the next decode pass; longer prompts are split",
    )
    speculation: Literal["auto", "on", "off"] = Field(
        "auto",
        description="speculative decoding: auto computes draft tokens where measurements show a gain, on always, off "
        "never; requests may override it",
    )
    prefix_store: int | None = Field(
        _ENGINE.prefix_store,
        ge=0,
        le=2**50,
        title="BYTES",
        description="host memory for cached prompts whose slots were reused; the least recently used are dropped "
        "first; 0 disables it; default: a tenth of the free memory, at most 8 GiB",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        title="TOKENS",
        description="maximum length of an answer whose request sets none; default: up to the end of its slot",
    )
    keep_loaded: bool = Field(
        False,
        description="with several models: load at the start, and unload neither for idleness nor for another model",
    )
    idle_unload: float | None = Field(
        None,
        gt=0,
        le=2**31,
        title="SECONDS",
        description="load models when they are first asked for, and unload one after this time without a request; "
        "default: it stays until another model needs its memory",
    )

    load_at_start: bool = Field(
        False, description="load a model at the start that may be unloaded later; the server is ready once it is loaded"
    )
    tags: Annotated[tuple[str, ...], BeforeValidator(split_items)] = Field(
        (), title="TAG", description="labels of the model in GET /models, separated by commas; they change nothing"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _plain_value(cls, value: object, info: ValidationInfo) -> object:
        """Refuse underscores in numbers, because pydantic reads `80_80` as 8080. Convert units of bytes.

        Refuse empty paths, such as those of unset variables of a script, which would be the working folder.
        """
        field = cls.model_fields[str(info.field_name)]
        if value == "" and field.title in _PATHS:
            raise ValueError("is empty")
        if field.annotation in _NUMERIC and "_" in str(value):
            raise ValueError("should be a number without underscores")
        return byte_count(value) if field.title == "BYTES" else value

    def for_model(self, **own: object) -> "ModelSettings":
        """Return the settings of one model: its own, and otherwise these."""
        shared = {name: getattr(self, name) for name in ModelSettings.model_fields}
        chosen = self.model_fields_set & shared.keys()
        settings = ModelSettings.model_construct(_fields_set=chosen | own.keys(), **{**shared, **own})
        settings.check()
        return settings

    def check(self) -> None:
        """Check that the settings go together.

        Raises:
            ValueError: they do not.
        """
        self.check_hardware()
        if self.split_mode == "tensor" and self.flash_attention == "off":
            raise ValueError("--split-mode tensor needs flash attention: leave out --flash-attention off")
        if self.context_shift and self.kv_unified:  # llama.cpp would move shared cells in all slots
            raise ValueError("--context-shift needs cells of its own for each slot: leave out --kv-unified")

    def config_of(self, model: str) -> EngineConfig:
        """Return the configuration of the engine of a model, as far as these settings decide it."""
        return EngineConfig(
            model=model,
            slots=self.slots,
            context=self.context,
            threads=self.threads,
            threads_batch=self.threads_batch,
            gpu_layers=self.gpu_layers,
            hardware=self.hardware,
            rope=self.rope,
            speculation=_as_bool(self.speculation),
            repack=_as_bool(self.repack),
            flash_attention=_as_bool(self.flash_attention),
            backend_sampling=_as_bool(self.backend_sampling),
            step_target_ms=self.step_target_ms,
            prefix_store=self.prefix_store,
            prefix_dir=None if self.prefix_dir is None else str(self.prefix_dir),
            prefix_dir_bytes=self.prefix_dir_bytes,
            kv_type_k=self.kv_type_k,
            kv_type_v=self.kv_type_v,
            kv_unified=self.kv_unified,
            context_shift=self.context_shift,
            pooling=self.pooling,
            adapters=tuple(str(adapter.file) for adapter in self.adapters),
            control_vectors=self.control_vectors,
            control_vector_layers=self.control_vector_layers,
        )


def _as_bool(choice: Literal["auto", "on", "off"]) -> bool | None:
    """Return None for `auto`, which leaves the choice to the engine."""
    return None if choice == "auto" else choice == "on"
