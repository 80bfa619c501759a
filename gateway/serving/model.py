"""One model of the server, loaded or not."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from engine import Engine, EngineState, EngineStatus, ModelInfo, Telemetry, Unavailable
from gateway import __version__
from gateway.hub.reference import HubReference
from gateway.middleware.caller import Caller
from gateway.serving.adapters import Adapter, Adapters
from gateway.serving.served import Served, Task
from gateway.serving.sources import EngineSource

ModelState: TypeAlias = Literal["unloaded", "loading", "loaded"]
_STATES: Mapping[EngineState, ModelState] = {
    EngineState.DOWNLOADING: "loading",
    EngineState.LOADING: "loading",
    EngineState.STOPPED: "unloaded",
    EngineState.FAILED: "unloaded",
}
Serve: TypeAlias = Callable[["Model", Engine], Served]
"""Makes what requests need of a model with its engine."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels that lists of models show beside a name. They have no effect."""

    aliases: tuple[str, ...]
    """Names that the operator gave it."""
    tags: tuple[str, ...] = ()
    """Its tags."""


class Model:
    """One model of the server: its names, its file and the source of its engine."""

    def __init__(
        self,
        source: EngineSource,
        name: str,
        place: Path | HubReference,
        names: Iterable[str],
        tasks: Iterable[Task],
        serve: Serve,
        adapters: Iterable[Adapter] = (),
        labels: Labels | None = None,
    ) -> None:
        self.source = source
        """Source of the engine. Only requests that hold it use the engine."""
        self.name = name
        """Name in answers."""
        self.place = place
        """GGUF file, or the model's name on the hub."""
        self.names = frozenset(names)
        """Names that requests may use."""
        self.tasks = frozenset(tasks)
        """Tasks that the model may be used for."""
        self.labels = labels or Labels((name,))
        """Names and tags in lists of models."""
        self.parent: str | None = None
        """Name of the model without its LoRA adapter; unset for a model without one."""
        self.adapters = Adapters(adapters, self.names)
        """LoRA adapters of the model."""
        self._serve = serve
        self._served: Served | None = None
        self._base: Model | None = None
        self._identity: tuple[int, str] | None = None
        self._identify()

    @property
    def created(self) -> int:
        """Modification time of the file, in seconds since 1970; 0 while it is not on this machine."""
        return self._identify()[0]

    @property
    def fingerprint(self) -> str:
        """Changes with the program's version or the file, since the same request may then have another answer."""
        before = __version__ if self._base is None else self._base.fingerprint
        return _fingerprint(before, self._identify()[1])

    @property
    def file(self) -> Path | None:
        """The GGUF file; unset while a model of the hub is not loaded."""
        if isinstance(self.place, Path):
            return self.place
        engine = self.source.engine
        return None if engine is None or engine.file is None else Path(engine.file)

    def _identify(self) -> tuple[int, str]:
        """Return the time and the identity of the file, as it was last loaded or first seen; none without it."""
        if self._identity is None and (file := self.file) is not None:
            with suppress(OSError):
                state = file.stat()
                self._identity = int(state.st_mtime), f"{file.name} {state.st_size} {state.st_mtime_ns}"
        return self._identity or (0, "")

    def adapted(self, adapter: Adapter, serve: Serve) -> "Model":
        """Return the model with a LoRA adapter: on the same engine, with a name of its own."""
        name, names = adapter.name_with(self.name), adapter.names(self.names)
        other = Model(self.source, name, adapter.file, names, self.tasks - {Task.EMBED, Task.RANK}, serve)
        other.parent, other._base = self.name, self
        return other

    @property
    def status(self) -> EngineStatus:
        """Status of the engine; `STOPPED` while there is none."""
        return self.source.status

    @property
    def state(self) -> ModelState:
        """State, by llama-server's names. A model whose engine restarts is loaded: requests may be sent."""
        return _STATES.get(self.status.state, "loaded")

    @property
    def failure(self) -> str:
        """Reason why the model could not be loaded; empty if it could, or was not tried."""
        return self.status.detail if self.status.state is EngineState.FAILED else ""

    @property
    def info(self) -> ModelInfo | None:
        """Description of the model; unset while it is not loaded."""
        engine = self.source.engine
        return None if engine is None else engine.model

    @property
    def telemetry(self) -> Telemetry:
        """Latest measurements of the engine, with the counters of those before it; zeros without one."""
        return self.source.telemetry

    async def hold(self, caller: Caller) -> Served:
        """Return the model with its engine, until the caller's request ends. May wait until it is loaded.

        Raises:
            EngineError: the model cannot be loaded now, or the wait is too long.
        """
        engine, before = await self.source.hold(caller.held), self._served
        served = self.with_engine(engine)
        if served is not before and self.source.on_demand:  # others are checked at the start
            served.prompts.warn_without_template(self.name)
        return served

    def loaded(self) -> Served:
        """Return the model with its engine, for a look at its state. Neither waits nor loads the model.

        Raises:
            Unavailable: the model is not loaded.
        """
        engine = self.source.engine
        if engine is None:
            raise Unavailable(self.status.detail, code="model_not_loaded")
        return self.with_engine(engine)

    def latest(self) -> Served:
        """Return the model with the engine that loaded it last, for a look at what stays the same.

        Raises:
            Unavailable: the model was not loaded yet.
        """
        engine = self.source.last_loaded
        return self.loaded() if engine is None else self.with_engine(engine)

    def with_engine(self, engine: Engine) -> Served:
        """Return the model with its engine."""
        if self._served is None or self._served.engine is not engine:
            if self.source.can_unload:  # each engine reads the file, which may be another one now
                self._identity = None
                self._identify()
            self._served = self._serve(self, engine)
        return self._served


def _fingerprint(before: str, identity: str) -> str:
    return f"fp_{hashlib.sha256(f'{before} {identity}'.encode()).hexdigest()[:12]}"
