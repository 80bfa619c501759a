"""Engines of the models in memory, opened and closed as `Residency` decides."""

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

from engine import Busy, Engine, EngineError, EngineState, EngineStatus, LoadError, Telemetry, Unavailable
from engine.notifier import Notifier
from gateway.residency.memory import Memory
from gateway.residency.policy import Residency
from gateway.residency.resident import Resident
from gateway.residency.terms import Action, Grant, Load, ModelTerms, Refuse, Ticket, Unload

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


class Residents:
    """Engines of models that are loaded on demand. Each is owned by a task of this object, which outlives requests."""

    def __init__(
        self,
        residency: Residency,
        open_engine: OpenEngine,
        watch: Watch | None = None,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        """Create the models without their engines.

        Args:
            residency: decides which models are in memory.
            open_engine: opens the engine of a model.
            watch: runs beside each engine. It must end with the engine.
            clock: clock of the decisions. It runs as fast as the event loop's.
        """
        self._residency = residency
        self._open_engine = open_engine
        self._watch = watch
        self._clock = clock
        self._tasks: TaskGroup | None = None
        self._engines: dict[str, Engine] = {}
        self._loaded: dict[str, Engine] = {}
        self._before: dict[str, Telemetry] = {}  # of the engines that have ended
        self._loads: dict[str, anyio.CancelScope] = {}
        self._requests: dict[Ticket, _Request] = {}
        self._changed = Notifier()
        self._context = copy_context()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Load models inside the context. Leaving it ends all engines."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._keep_time)
            self._decide()
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    async def hold(self, model: str, held: ExitStack, deadline: float = math.inf) -> Engine:
        """Wait until a model is loaded and return its engine. The model stays in memory until `held` is closed.

        Cancelling the wait gives up the place among those that wait. The last one ends the load.

        Args:
            model: name of the model.
            held: what the request holds until its end.
            deadline: time by the event loop's clock at which the wait ends.

        Raises:
            Busy: too many requests wait, or the deadline has passed.
            Unavailable: the model cannot be loaded now, or the server is stopping.
            LoadError: the model never fits into the memory that models may take.
        """
        if self._tasks is None:
            raise Unavailable("The server is shutting down.", code="shutting_down")
        ticket = self._residency.arrive(model)
        request = self._requests[ticket] = _Request()
        try:
            self._decide()
            with anyio.CancelScope(deadline=deadline):
                await request.answered.wait()
            _check_granted(request, model)
            engine = self._granted(model)
        except BaseException:
            self._leave(ticket)
            raise
        held.callback(self._leave, ticket)
        return engine

    def __getitem__(self, model: str) -> Resident:
        """Return the account of a model."""
        return self._residency[model]

    def add(self, terms: ModelTerms) -> None:
        """Add a model. It is loaded when a request asks for it."""
        self._residency.add(terms)

    async def remove(self, model: str) -> None:
        """Unload a model once no request uses it or waits for it, and forget it. No request may follow."""
        resident = self[model]
        while not resident.gone:
            if not resident.dismissed:
                self.unload(model)
            await self._changed.wait()
        self._residency.remove(model)
        self._loads.pop(model, None)
        self._loaded.pop(model, None)
        self._before.pop(model, None)

    def load(self, model: str) -> None:
        """Load a model without a request for it, as soon as there is room."""
        self._residency.want(model)
        self._decide()

    def unload(self, model: str) -> None:
        """Unload a model once no request uses it, or end its load unless requests wait for it."""
        self._residency.dismiss(model)
        self._decide()

    def keep(self, model: str, seconds: float | None) -> None:
        """Keep a model in memory so long after its last request; None: until another needs its room."""
        self._residency.keep(model, seconds)
        self._decide()

    def resize(self, model: str, need: Memory) -> bool:
        """Record the bytes of a model that is being loaded, now that its file is there.

        Returns False if there is no room for them. The load is then being ended, and begins again once there is.
        """
        fits = self._residency.resize(model, need)
        if not fits:
            logger.info("the model needs more room than was known", extra={"model": model, "needs": str(need)})
        self._decide()
        return fits

    def replace(self, model: str, need: Memory) -> None:
        """Load a model from another file from now on, which takes these bytes. Requests that use it go on."""
        self._residency.replace(model, need)
        self._decide()

    def idle_left(self, model: str) -> float | None:
        """Return the seconds until a model is unloaded for idleness, or None if it is not."""
        end = self[model].idle_until
        return None if end is None else max(end - self._clock(), 0.0)

    def engine(self, model: str) -> Engine | None:
        """Return the engine of a model, which may be loading, or None."""
        return self._engines.get(model)

    def last_loaded(self, model: str) -> Engine | None:
        """Return the engine that loaded a model last, which may have ended, or None."""
        return self._loaded.get(model)

    def telemetry(self, model: str) -> Telemetry:
        """Return the measurements of a model: of its engine, and the counters of all engines that it had before."""
        before = self._before.get(model)
        if (engine := self.engine(model)) is None:
            return before or Telemetry.none()
        return engine.telemetry if before is None else before + engine.telemetry

    def status(self, model: str) -> EngineStatus:
        """Return the status of a model's engine: `STOPPED` while it has none, `FAILED` if it could not be loaded."""
        if (engine := self.engine(model)) is not None:
            return engine.status
        if failure := self[model].failure:
            return EngineStatus(EngineState.FAILED, failure, 0.0, 0)
        return EngineStatus(EngineState.STOPPED, "The model is not loaded.", 0.0, 0)

    def _granted(self, model: str) -> Engine:
        """Return the engine that a request was granted. Raises `Unavailable` if it has been lost since then."""
        if (engine := self._engines.get(model)) is None:
            raise Unavailable(self[model].failure, code="model_unavailable")
        return engine

    def _leave(self, ticket: Ticket) -> None:
        if self._requests.pop(ticket).refusal is None:  # one that is refused has left
            self._residency.leave(ticket, self._clock())
            self._decide()

    def _decide(self) -> None:
        """Carry out the decisions that follow from what has happened."""
        if self._tasks is not None:
            for action in self._residency.decide(self._clock()):
                self._carry_out(action, self._tasks)
            self._changed.notify()

    def _carry_out(self, action: Action, tasks: TaskGroup) -> None:
        match action:
            case Load(model):
                self._loads[model] = anyio.CancelScope()
                # outside the request that asked first, whose id would otherwise be in the log of the model's whole life
                self._context.copy().run(tasks.start_soon, self._live, model, self._loads[model])
            case Unload(model):
                self._loads[model].cancel()
            case Grant(ticket):
                self._requests[ticket].answered.set()
            case Refuse(ticket):
                request = self._requests[ticket]
                request.refusal = _refusal(action)
                request.answered.set()

    async def _live(self, model: str, scope: anyio.CancelScope) -> None:
        """Own the engine of a model from its start until its process has ended."""
        failure = cause = ""
        with scope:
            try:
                async with self._open_engine(model) as engine:
                    self._engines[model] = engine
                    if self._watch is not None and self._tasks is not None:
                        self._tasks.start_soon(self._watch, model, engine)
                    await self._load(model, engine)
                    await engine.lost()
            except EngineError as error:
                failure = error.message
                cause = self.status(model).cause or failure
            finally:
                self._before[model] = self.telemetry(model)
                self._engines.pop(model, None)
        if failure:
            logger.error("cannot load the model", extra={"model": model, "why": cause})
            self._residency.failed(model, failure, self._clock())
        else:
            logger.info("model unloaded", extra={"model": model})
            self._residency.unloaded(model)
        self._decide()

    async def _load(self, model: str, engine: Engine) -> None:
        """Wait until an engine has loaded its model. Raises `EngineError` if it cannot."""
        began = self._clock()
        logger.info("loading the model", extra={"model": model})
        info = await engine.ready()
        await anyio.lowlevel.checkpoint_if_cancelled()  # the load may have been ended just before
        self._loaded[model] = engine
        need = Memory(info.host_memory, info.gpu_memory)
        took = {"seconds": round(self._clock() - began, 3), "takes": str(Memory(info.host_buffers, info.gpu_memory))}
        logger.info("model loaded", extra={"model": model, **took, "counts": str(need)})
        self._residency.loaded(model, need, self._clock())
        self._decide()

    async def _keep_time(self) -> None:
        """Decide when a time has come: to unload an idle model, or to try a failed one again."""
        while True:
            wake_at = self._residency.wake_at()
            wait = math.inf if wake_at is None else max(wake_at - self._clock(), 0)
            with anyio.move_on_after(wait) as scope:
                await self._changed.wait()
            if scope.cancelled_caught:
                self._decide()


def _check_granted(request: _Request, model: str) -> None:
    if request.refusal is not None:
        raise request.refusal
    if not request.answered.is_set():
        message = f"The request waited for the model {model!r} for longer than this server allows."
        raise Busy(message, code="queue_timeout")


def _refusal(refuse: Refuse) -> EngineError:
    if refuse.retry_after is None:
        return LoadError(refuse.reason, code="model_too_large")
    return Unavailable(refuse.reason, code="model_unavailable", retry_after=refuse.retry_after)
