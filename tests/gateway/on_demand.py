"""The application with models on demand, on fake engines."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.lowlevel
from starlette.types import ASGIApp

from gateway.app import Gateway, create_gateway
from gateway.residency.memory import Memory
from gateway.residency.policy import Residency
from gateway.residency.residents import Residents
from gateway.residency.terms import ModelTerms, ResidencyLimits
from gateway.settings import Settings
from gateway.settings.table import ModelTable
from tests.gateway.application import settings_for
from tests.gateway.residency.openers import FakeOpener

_FILE = Path(__file__)


@dataclass
class OnDemand:
    """A gateway of the models `a`, `b` and `c`, of which two fit into memory."""

    gateway: Gateway
    opener: FakeOpener
    residents: Residents

    @property
    def app(self) -> ASGIApp:
        return self.gateway.app

    async def until(self, **states: str) -> None:
        """Wait until these models have these states."""
        models = {model.name: model for model in self.gateway.models.all}
        with anyio.fail_after(20):
            while any(models[name].state != state for name, state in states.items()):
                await anyio.lowlevel.checkpoint()


def settings_of_three(file: Path = _FILE, **changes: object) -> Settings:
    """Return settings with three models, which have one file."""
    table = ModelTable.model_construct(file=file)
    settings = settings_for(models=dict.fromkeys("abc", table), **changes)
    settings.model_fields_set.discard("model")
    return settings


@asynccontextmanager
async def on_demand(
    *, kept: str = "", first: str = "", loads_at_once: bool = True, queue_timeout: float = 300, file: Path = _FILE
) -> AsyncIterator[OnDemand]:
    """Open the gateway of three models; `kept` names those that are kept loaded, and `first` those of the start."""
    settings = settings_of_three(file, queue_timeout=queue_timeout)
    terms = [ModelTerms(name, Memory(1), keep_loaded=name in kept, load_at_start=name in first) for name in "abc"]
    opener = FakeOpener(loads_at_once=loads_at_once)
    limits = ResidencyLimits(backoff_first=1000, backoff_longest=1000)
    residents = Residents(Residency(terms, Memory(2), limits), opener, timeout=queue_timeout)
    async with residents.open():
        yield OnDemand(create_gateway(residents.models, settings), opener, residents)
