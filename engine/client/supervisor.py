"""Keeps an engine process alive: start, load, watch, end, start again."""

import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

import anyio

from engine.client.exchange import Exchange
from engine.client.process import EngineProcess, describe_exit
from engine.client.queries import Queries
from engine.client.status import EngineState, EngineStatus, StatusBoard
from engine.client.timeouts import Supervision
from engine.config import EngineConfig
from engine.events import EngineMetrics, ModelInfo
from engine.protocol.messages import (
    Accepted,
    Answered,
    Configure,
    Inspected,
    Loaded,
    LoadFailed,
    Loading,
    Message,
    QueryFailed,
    Refused,
    Step,
)

logger = logging.getLogger(__name__)

_CRASHES = {-signal.SIGILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT}
"""Exit codes of a process that met code its machine cannot run."""


@dataclass(slots=True, kw_only=True)
class _Life:
    """What is known of one process.

    Attributes:
        child: the process.
        progress_at: when loading advanced, or a step was finished, last.
        progress: share of the model that is loaded.
        steps: passes finished.
        ready_at: when it had loaded the model; None before.
        complaint: what it did wrong, as a sentence; empty so far.
    """

    child: EngineProcess
    progress_at: float
    progress: float = 0.0
    steps: int = 0
    ready_at: float | None = None
    complaint: str = ""


class Supervisor:
    """Runs one engine process after another, and passes its news on.

    Before the model was loaded once, a process that ends is the end: the configuration is wrong. Only a crash
    leads to one more try, without weights repacked for the CPU at hand, because their kernels crash on some
    machines. Once the model was loaded, a process that ends is replaced for ever.
    """

    def __init__(self, config: EngineConfig, command: Sequence[str], limits: Supervision) -> None:
        self.board = StatusBoard()
        self.exchange = Exchange()
        self.queries = Queries()
        self.model: ModelInfo | None = None
        self.metrics: EngineMetrics | None = None
        self.limits = limits
        self._config = config
        self._command = command
        self._delay: float | None = None
        self._scope = anyio.CancelScope(shield=True)

    async def run(self) -> None:
        """Keep an engine until `stop`, or until the model cannot be loaded.

        Other cancellation is not heard: requests that leave because of it still wait for their release.
        """
        try:
            with self._scope:
                while await self._one_life():
                    pass
        finally:
            self.exchange.close()

    def stop(self) -> None:
        """End the process and `run`."""
        self._post(EngineState.STOPPED, "The engine was stopped.")
        self._scope.cancel()

    async def _one_life(self) -> bool:
        """Run one process to its end. Gives whether another is to follow, after the wait that is due."""
        try:
            child = await EngineProcess.start(self._command)
        except OSError as error:
            return await self._replace(f"The engine process cannot be started: {error}.", served=0.0)
        life = _Life(child=child, progress_at=anyio.current_time())
        child.send(Configure(self._config))
        try:
            await self._attend(life)
        finally:
            served = 0.0 if life.ready_at is None else anyio.current_time() - life.ready_at
            self._disconnect()
            await child.end(self.limits.drain_timeout)
        code = await child.exited()
        if self.model is None and self._config.repack is not False and code in _CRASHES:
            self._fall_back(code)
            return True
        return await self._replace(life.complaint or describe_exit(code), served)

    def _disconnect(self) -> None:
        if self.board.latest.state is EngineState.READY:
            self._post(EngineState.RESTARTING, "The engine process ended.")
        self.metrics = None
        self.exchange.disconnect()
        self.queries.disconnect()

    async def _attend(self, life: _Life) -> None:
        """Serve a process until no more comes of it."""
        async with anyio.create_task_group() as group:
            group.start_soon(life.child.write)
            group.start_soon(self._watch, life, group.cancel_scope)
            await self._listen(life)
            group.cancel_scope.cancel()

    async def _listen(self, life: _Life) -> None:
        try:
            while not life.complaint and (messages := await life.child.receive()):
                now = anyio.current_time()
                for message in messages:
                    self._receive(life, message, now)
        except ValueError as error:
            life.complaint = f"The engine process sent what is no frame: {error}."
            life.child.kill()

    async def _watch(self, life: _Life, serving: anyio.CancelScope) -> None:
        """Give the process up, by kill, when nothing has come of it for too long.

        The deadline moves: later with progress, and earlier when loading ends. No request that comes meanwhile can
        be due before `stall_timeout` has passed.
        """
        while (remaining := self._gives_up_at(life) - anyio.current_time()) > 0:  # noqa: ASYNC110
            await anyio.sleep(min(remaining, self.limits.stall_timeout))
        if life.ready_at is None:
            life.complaint = f"The model made no progress in loading for {self.limits.load_timeout:g} s."
        else:
            life.complaint = f"The engine had work and finished no step for {self.limits.stall_timeout:g} s."
            self._post(EngineState.STALLED, life.complaint)
        life.child.kill()
        serving.cancel()

    def _gives_up_at(self, life: _Life) -> float:
        return self.limits.gives_up_at(
            ready=life.ready_at is not None,
            progress_at=life.progress_at,
            oldest=self.exchange.oldest,
            now=anyio.current_time(),
        )

    def _receive(self, life: _Life, message: Message, now: float) -> None:
        match message:
            case Step(events, metrics):
                self._note_figures(life, metrics, now)
                self.exchange.deliver(events, now)
            case Accepted():
                self.exchange.accept(message)
            case Refused():
                self.exchange.refuse(message)
            case Answered(_, answer):
                if isinstance(answer, Inspected):
                    self._note_figures(life, answer.metrics, now)
                self.queries.settle(message)
            case QueryFailed():
                self.queries.settle(message)
            case Loading(progress):
                self._note_loading(life, progress, now)
            case Loaded(model):
                self._note_loaded(life, model, now)
            case LoadFailed(reason):
                life.complaint = reason
            case _:
                raise ValueError(f"{type(message).__name__} is no message from an engine")

    def _note_figures(self, life: _Life, metrics: EngineMetrics, now: float) -> None:
        """Only a finished pass is progress: a wedged step thread leaves others that still answer."""
        self.metrics = metrics
        if metrics.steps > life.steps:
            life.steps = metrics.steps
            life.progress_at = now

    def _note_loading(self, life: _Life, progress: float, now: float) -> None:
        if progress > life.progress:
            life.progress = progress
            life.progress_at = now
            self.board.post(replace(self.board.latest, progress=progress))

    def _note_loaded(self, life: _Life, model: ModelInfo, now: float) -> None:
        self.model = model
        life.ready_at = life.progress_at = now
        self._post(EngineState.READY, "The model is loaded.", progress=1.0)
        self.exchange.connect(life.child.send)
        self.queries.connect(life.child.send)

    def _fall_back(self, code: int) -> None:
        self._config = replace(self._config, repack=False)
        logger.warning(
            "the model is loaded once more, without weights repacked for this CPU, which may make it slower",
            extra={"why": describe_exit(code)},
        )
        self._post(EngineState.LOADING, "The model is loading, without repacked weights.", restarts=1)

    async def _replace(self, fate: str, served: float) -> bool:
        """Wait before the next process; False if there is to be none."""
        if self.model is None:
            self._post(EngineState.FAILED, fate)
            return False
        self._delay = self.limits.backoff(self._delay, served)
        logger.error("engine process lost", extra={"why": fate, "restart_in_s": self._delay})
        self._post(EngineState.RESTARTING, fate, restarts=self.board.latest.restarts + 1)
        await anyio.sleep(self._delay)
        return True

    def _post(self, state: EngineState, detail: str, *, progress: float = 0.0, restarts: int | None = None) -> None:
        known = self.board.latest
        self.board.post(EngineStatus(state, detail, progress, known.restarts if restarts is None else restarts))
