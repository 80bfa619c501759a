"""Models that are loaded on demand: the engine of each, opened and closed as `Residency` decides for all."""

import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from typing_extensions import override

from engine import Busy, Engine, EngineError, EngineState, EngineStatus, Telemetry, Unavailable, shutting_down
from engine.notifier import Notifier
from gateway.residency.memory import Memory
from gateway.residency.policy import Residency
from gateway.residency.resident import Resident
from gateway.residency.terms import Action, Grant, Load, ModelTerms, Refuse, Ticket, Unload
from gateway.serving.sources import EngineSource

logger = logging.getLogger(__name__)

Watch: TypeAlias = Callable[[str, Engine], Coroutine[Any, Any, None]]
"""Watches the engine of the model with a name from its start on."""
OpenEngine: TypeAlias = Callable[[str], AbstractAsyncContextManager[Engine]]
"""Opens the engine of the model with a name. Leaving the context ends its process."""


@dataclass(eq=False, slots=True)
class _Request:
    """A request until it leaves."""

    answered: anyio.Event = field(default_factory=anyio.Event)
    """Set once it is granted or refused."""
    refusal: EngineError | None = None
    """Reason of the refusal."""


class EngineOnDemand(EngineSource):
    """The engine of one model, which requests load, and which makes room for others."""

    can_unload = True
    engine: Engine | None = None
    last_loaded: Engine | None = None

    def __init__(self, residents: "Residents", account: Resident) -> None:
        """Create one of the models that share the memory, without its engine."""
        self.account = account
        """Account of the model."""
        self._residents = residents
        self._residency = residents.residency
        self._name = account.name
        self._before = Telemetry.none()  # of the engines that have ended
        self._life = anyio.CancelScope()
        self._requests: dict[Ticket, _Request] = {}

    @property
    @override
    def on_demand(self) -> bool:
        """True unless it is kept loaded, or is to be loaded at the start and was not yet."""
        awaited = self.account.terms.load_at_start and self.last_loaded is None
        return not (self.account.terms.keep_loaded or awaited)

    @property
    @override
    def status(self) -> EngineStatus:
        if self.engine is not None:
            return self.engine.status
        if failure := self.account.failure:
            return EngineStatus(EngineState.FAILED, failure, 0.0, 0)
        return EngineStatus(EngineState.STOPPED, "The model is not loaded.", 0.0, 0)

    @property
    @override
    def telemetry(self) -> Telemetry:
        return self._before if self.engine is None else self._before + self.engine.telemetry

    @property
    @override
    def waiting(self) -> int:
        return len(self.account.waiting)

    @property
    @override
    def idle_left(self) -> float | None:
        end = self.account.idle_until
        return None if end is None else end - self._residents.clock()

    @override
    async def hold(self, held: ExitStack) -> Engine:
        """Wait until the model is loaded and return its engine. It stays in memory until `held` is closed.

        Cancelling the wait gives up the place among those that wait. The last one ends the load.

        Raises:
            Busy: too many requests wait, or this one has waited for too long.
            Unavailable: the model cannot be loaded now, or the server is stopping.
            LoadError: the model never fits into the memory that models may take.
        """
        self._residents.check_open()
        ticket = self._residency.arrive(self._name)
        request = self._requests[ticket] = _Request()
        try:
            self._residents.decide()
            with anyio.move_on_after(self._residents.timeout):
                await request.answered.wait()
            engine = self._granted(request)
        except BaseException:
            self._leave(ticket)
            raise
        held.callback(self._leave, ticket)
        return engine

    def _granted(self, request: _Request) -> Engine:
        """Return the engine to a request whose wait has ended, or raise the reason why it has none."""
        if request.refusal is not None:
            raise request.refusal
        if not request.answered.is_set():
            message = f"The request waited for the model {self._name!r} for longer than this server allows."
            raise Busy(message, code="queue_timeout")
        if self.engine is None:  # it has been lost since then
            raise Unavailable(self.account.failure, code="model_unavailable")
        return self.engine

    def _leave(self, ticket: Ticket) -> None:
        if self._requests.pop(ticket).refusal is None:  # one that is refused has left
            self._residency.leave(ticket, self._residents.clock())
            self._residents.decide()

    @override
    def load(self) -> bool:
        ordered = self._residency.want(self._name)
        self._residents.decide()
        return ordered

    @override
    def unload(self) -> None:
        self._residency.dismiss(self._name)
        self._residents.decide()

    @override
    def keep(self, seconds: float) -> None:
        self._residency.keep(self._name, seconds if seconds >= 0 else None)
        self._residents.decide()

    def resize(self, need: Memory) -> bool:
        """Record the bytes of the model while it is being loaded, now that its file is there.

        Returns False if there is no room for them. The load is then being ended, and begins again once there is.
        """
        fits = self._residency.resize(self._name, need)
        if not fits:
            logger.info("the model needs more room than was known", extra={"model": self._name, "needs": str(need)})
        self._residents.decide()
        return fits

    def replace(self, need: Memory) -> None:
        """Load the model from another file from now on, which takes these bytes. Requests that use it go on."""
        self._residency.replace(self._name, need)
        self._residents.decide()

    def carry_out(self, action: Action) -> None:
        """Carry out a decision on this model."""
        match action:
            case Load():
                self._life = anyio.CancelScope()
                self._residents.start(self._live)
            case Unload():
                self._life.cancel()
            case Grant(ticket):
                self._requests[ticket].answered.set()
            case Refuse(ticket):
                self._requests[ticket].refusal = action.error
                self._requests[ticket].answered.set()

    async def _live(self) -> None:
        """Own the engine from its start until its process has ended."""
        failure = cause = ""
        with self._life:
            try:
                async with self._residents.open_engine(self._name) as engine:
                    self.engine = engine
                    await self._load(engine)
                    await engine.lost()
            except EngineError as error:
                failure, cause = error.message, self.status.cause or error.message
            finally:
                self._before, self.engine = self.telemetry, None
        if failure:
            logger.error("cannot load the model", extra={"model": self._name, "why": cause})
            self._residency.failed(self._name, failure, self._residents.clock())
        else:
            logger.info("model unloaded", extra={"model": self._name})
            self._residency.unloaded(self._name)
        self._residents.decide()

    async def _load(self, engine: Engine) -> None:
        """Wait until an engine has loaded the model. Raises `EngineError` if it cannot."""
        began = self._residents.clock()
        logger.info("loading the model", extra={"model": self._name})
        if self._residents.watch is not None:
            self._residents.start(self._residents.watch, self._name, engine)
        info = await engine.ready()
        await anyio.lowlevel.checkpoint_if_cancelled()  # the load may have been ended just before
        self.last_loaded = engine
        now, need = self._residents.clock(), Memory(info.host_memory, info.gpu_memory)
        took = {"seconds": round(now - began, 3), "takes": str(Memory(info.host_buffers, info.gpu_memory))}
        logger.info("model loaded", extra={"model": self._name, **took, "counts": str(need)})
        self._residency.loaded(self._name, need, now)
        self._residents.decide()


class Residents:
    """Models that share the memory. They carry out the decisions of their `Residency`."""

    _tasks: TaskGroup | None = None

    def __init__(
        self,
        residency: Residency,
        open_engine: OpenEngine,
        watch: Watch | None = None,
        *,
        timeout: float = math.inf,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        """Create the models without their engines.

        Args:
            residency: decides which models are in memory.
            open_engine: opens the engine of a model.
            watch: runs beside each engine. It must end with the engine.
            timeout: seconds that a request may wait for its model.
            clock: clock of the decisions. It runs as fast as the event loop's.
        """
        self.residency, self.open_engine, self.watch = residency, open_engine, watch
        self.timeout, self.clock = timeout, clock
        self.models = {account.name: EngineOnDemand(self, account) for account in residency.all}
        """All models by name."""
        self._changed = Notifier()
        self._context = copy_context()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Load models inside the context. Leaving it ends all engines."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._keep_time)
            self.decide()
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    def check_open(self) -> None:
        """Raise `Unavailable` if the server is stopping."""
        if self._tasks is None:
            raise shutting_down()

    def add(self, terms: ModelTerms) -> EngineOnDemand:
        """Add a model and return it. It is loaded when a request asks for it."""
        model = self.models[terms.name] = EngineOnDemand(self, self.residency.add(terms))
        return model

    async def remove(self, name: str) -> None:
        """Unload a model once no request uses it or waits for it, and forget it. No request may follow."""
        model = self.models[name]
        while not model.account.gone:
            if not model.account.dismissed:
                model.unload()
            await self._changed.wait()
        self.residency.remove(name)
        del self.models[name]

    def decide(self) -> None:
        """Carry out the decisions that follow from what has happened."""
        if self._tasks is None:
            return
        for action in self.residency.decide(self.clock()):
            name = action.ticket.model if isinstance(action, Grant | Refuse) else action.model
            self.models[name].carry_out(action)
        self._changed.notify()

    def start(self, task: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Start a task outside the request that causes it, whose id would otherwise be in the log of its whole life."""
        if self._tasks is not None:
            self._context.copy().run(self._tasks.start_soon, task, *args)

    async def _keep_time(self) -> None:
        """Decide when a time has come: to unload an idle model, or to try a failed one again."""
        while True:
            with anyio.move_on_after(max(self.residency.wake_at() - self.clock(), 0)) as scope:
                await self._changed.wait()
            if scope.cancelled_caught:
                self.decide()
