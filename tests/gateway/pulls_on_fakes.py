"""The application that lets clients pull models, on fake engines and a fake hub."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from starlette.types import ASGIApp

from engine import EngineError
from gateway.app import Equipment, Gateway, create_gateway
from gateway.hub.cache import HubCache
from gateway.hub.download_progress import DownloadProgress
from gateway.hub.reference import HubReference
from gateway.keys.ring import KeyRing
from gateway.pulls.pulls import PullParts
from gateway.residency.memory import Memory
from gateway.residency.policy import Residency
from gateway.residency.residents import Residents
from gateway.residency.terms import ModelTerms
from gateway.serving.sources import EngineHost, EngineSource
from gateway.settings.table import ServedModel
from gateway.stores import OpenStores
from tests.gateway.application import NAME, settings_for
from tests.gateway.residency.openers import FakeOpener

COMMIT = "c" * 40
DIGEST = "d" * 64
SIZE = 10


class FakeHost(EngineHost):
    """Engines of models that join, on a residency that has room for two."""

    def __init__(self) -> None:
        self.opener = FakeOpener(loads_at_once=True)
        self.residents = Residents(Residency([ModelTerms(NAME, Memory(1))], Memory(2)), self.opener)
        self.files: dict[str, Path] = {}

    async def join(self, model: ServedModel) -> EngineSource:
        assert isinstance(model.place, Path)
        if model.name not in self.files:
            self.residents.add(ModelTerms(model.name, Memory(1)))
        self.files[model.name] = model.place
        return self.residents.models[model.name]

    async def leave(self, name: str) -> None:
        await self.residents.remove(name)
        del self.files[name]

    def used(self, name: str) -> bool:
        return self.residents.models[name].account.used


@dataclass
class FakeHub:
    """A hub of one file for each quantisation. A test decides when a download ends."""

    cache: HubCache
    fetched: list[str] = field(default_factory=list)
    """Models whose downloads have begun."""
    cancelled: list[str] = field(default_factory=list)
    """Models whose downloads were cancelled."""
    failure: Exception | None = None
    """Raised by the next downloads."""
    go: anyio.Event = field(default_factory=anyio.Event)
    """Until it is set, downloads stop after the half."""

    async def fetch(self, reference: HubReference, progress: Callable[[DownloadProgress], None]) -> Path:
        self.fetched.append(str(reference))
        if self.failure is not None:
            raise self.failure
        progress(DownloadProgress(0.5, DIGEST, SIZE, SIZE // 2))
        try:
            await self.go.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(str(reference))
            raise
        progress(DownloadProgress(1.0, DIGEST, SIZE, SIZE))
        return self.place(reference)

    def place(self, reference: HubReference) -> Path:
        """Put a model's file into the cache, as a download does."""
        digest = f"{reference.quant or 'Q4_K_M'}".encode().hex().ljust(64, "0")
        blob = self.cache.blob(reference.repository, digest)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(bytes(SIZE))
        return self.cache.link(reference.repository, COMMIT, f"some-{reference.quant or 'Q4_K_M'}.gguf", digest)

    @staticmethod
    def reference(name: str) -> HubReference:
        """Return the model with a name of Ollama's."""
        return HubReference.parse(name.replace("hf.co/", "hf:"))

    def fail(self, error: EngineError) -> None:
        """Let the next downloads fail."""
        self.failure = error


@dataclass
class Pulling:
    """A gateway of one model, whose clients may pull further ones."""

    gateway: Gateway
    host: FakeHost
    hub: FakeHub

    @property
    def app(self) -> ASGIApp:
        return self.gateway.app


@asynccontextmanager
async def pulling(folder: Path, *, keys: KeyRing | None = None) -> AsyncIterator[Pulling]:
    """Open the gateway. Its cache is in a folder, which may have models of an earlier one."""
    host, hub = FakeHost(), FakeHub(HubCache(folder))
    equipment = Equipment(stores=OpenStores(keys=keys), pulls=PullParts(host, hub.cache, hub.fetch))
    gateway = create_gateway(host.residents.models, settings_for(), equipment)
    with anyio.fail_after(20):
        async with host.residents.open(), gateway.running():
            yield Pulling(gateway, host, hub)
