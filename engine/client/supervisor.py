"""Supervision of the engine process: start, load, watch, end, restart."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from engine.client.download import DOWNLOADING, Download, obtain
from engine.client.exchange import Exchange
from engine.client.measurements.telemetry import Totals
from engine.client.pace import LoadPace
from engine.client.process import CRASHES, EngineProcess, describe_exit
from engine.client.queries import Queries
from engine.client.repack_cache import RepackCache
from engine.client.status import EngineState, StatusBoard, without_folders
from engine.client.timeouts import Supervision
from engine.config import EngineConfig
from engine.errors import Unavailable
from engine.info import EngineMetrics, ModelInfo
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
    SetLogLevel,
    Step,
    Working,
)

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Session:
    """State of one engine process from its start to its end."""

    process: EngineProcess
    """The child process."""
    progress_at: float
    """Time of the last progress: loading advanced, a step finished or went on, or the intake worked."""
    steps: int = 0
    """Number of finished steps."""
    ready_at: float | None = None
    """Time when the model was loaded; unset before."""
    failure: str = ""
    """Failure of the process, as a sentence; empty if it has not failed."""
    refused: bool = False
    """True if the failure is that of the load, by the process's own words."""


class Supervisor:
    """Runs one engine process after another, and dispatches its messages.

    If a process ends before the model was loaded for the first time, the supervisor stops: the configuration is wrong.
    Only after a crash it tries once more without weights repacked for this CPU, because their kernels crash on some
    machines. If that works, the crash is remembered for the next start. After the model was loaded once, every process
    that ends is replaced, without limit.
    """

    def __init__(
        self,
        config: EngineConfig,
        command: Sequence[str],
        limits: Supervision,
        clock: Callable[[], float] = anyio.current_time,
        download: Download | None = None,
    ) -> None:
        self.board = StatusBoard()
        self.exchange = Exchange(config.slots + config.queue_limit, clock)
        self.queries = Queries(clock)
        self.model: ModelInfo | None = None
        self.metrics: EngineMetrics | None = None
        self.totals = Totals()
        self.limits = limits
        self.file = config.model if download is None else None
        self.log_name = config.log_name
        self._config = config
        self._process: EngineProcess | None = None
        self._download = download
        if download is not None:
            self.board.post(DOWNLOADING)
        self._repack_cache = RepackCache()
        self._repack_crashed = False
        self._command = command
        self._clock = clock
        self._delay: float | None = None
        self._loading = LoadPace()
        self._scope = anyio.CancelScope(shield=True)

    async def run(self) -> None:
        """Keep an engine process alive until `stop`, or until the model cannot be loaded.

        Shielded from outer cancellation, because cancelled requests still wait for their release.
        """
        if self._config.repack is None and self._repack_cache.crashes():
            self._config = replace(self._config, repack=False)
        try:
            with self._scope:
                if await self._obtain():
                    while await self._run_session():
                        pass
        finally:
            self.exchange.close(self.unavailable)

    def seconds_to_ready(self) -> float | None:
        """Return the estimated time until the model is loaded, or None if it is unknown."""
        return self._loading.seconds(self.board.latest.progress, anyio.current_time())

    def unavailable(self) -> Unavailable:
        """Return the error of a request that the engine does not serve now."""
        status = self.board.latest
        code = "model_unavailable" if status.cause else "engine_unavailable"
        return Unavailable(status.detail, code=code, retry_after=self.seconds_to_ready())

    def set_log_level(self, level: str) -> None:
        """Set the log level of this engine process and of those after it."""
        self._config = replace(self._config, log_level=level)
        if self._process is not None:
            self._process.send(SetLogLevel(level))

    def stop(self) -> None:
        """End the engine process, and then `run`. Requests that wait for a model that is lost get the reason."""
        known = self.board.latest
        detail = known.detail if known.cause else "The engine was stopped."
        self.board.change(EngineState.STOPPED, detail, cause=known.cause)
        self._scope.cancel()

    async def _obtain(self) -> bool:
        """Wait for the model's file. Returns False if it cannot be had."""
        if self._download is not None:
            self._loading.begin(anyio.current_time())
            found = await obtain(self._download, self.board)
            if found is None:
                return False
            self._config = replace(found, log_level=self._config.log_level, repack=self._config.repack)
            self.file = found.model
        return True

    async def _run_session(self) -> bool:
        """Run one process to its end. Waits for the backoff; returns True if another process follows."""
        try:
            process = await EngineProcess.start(self._command)
        except OSError as error:
            return await self._replace(f"The engine process cannot be started: {error.strerror}.")
        session = _Session(process=process, progress_at=self._clock())
        self._loading.begin(anyio.current_time())
        process.send(Configure(self._config))
        self._process = process
        try:
            await self._serve(session)
        finally:
            self._process = None
            ready = 0.0 if session.ready_at is None else self._clock() - session.ready_at
            self._disconnect()
            code = await process.end(self.limits.drain_timeout, self.limits.kill_timeout)
        await anyio.lowlevel.checkpoint()  # it ends here if it was stopped meanwhile
        if self.model is None and self._config.repack is not False and code in CRASHES:
            self._disable_repack(code)
            return True
        reason = session.failure or describe_exit(code)
        return await self._replace(reason, session.steps, ready, refused=session.refused)

    def _disconnect(self) -> None:
        if self.board.latest.state is EngineState.READY:
            self.board.change(EngineState.RESTARTING, "The engine process ended.")
        self.metrics = None
        self.totals.end_process()
        self.exchange.disconnect()
        self.queries.disconnect()

    async def _serve(self, session: _Session) -> None:
        """Exchange messages with a process until it ends, fails or stalls."""
        async with anyio.create_task_group() as group:
            group.start_soon(session.process.write)
            group.start_soon(self._watch, session, group)
            await self._read(session)
            group.cancel_scope.cancel()

    async def _read(self, session: _Session) -> None:
        try:
            while not session.failure and (messages := await session.process.receive()):
                now = self._clock()
                for number, message in enumerate(messages, start=1):
                    self._receive(session, message, now, last=number == len(messages))
        except ValueError as error:
            session.failure = f"The engine process sent an invalid frame: {error}."
            session.process.kill()

    async def _watch(self, session: _Session, serving: TaskGroup) -> None:
        """Kill the process when it has made no progress until its deadline. A stall of the event loop does not count.

        The deadline moves: later with progress, and earlier when loading ends. A request that arrives during a sleep
        cannot stall before `stall_timeout` has passed. A query may take longer, but the process must answer a ping.
        """
        while (remaining := self._deadline(session) - self._clock()) > 0:
            await anyio.sleep(min(remaining, self.limits.stall_timeout))
            if self.queries.waiting and self.queries.pinged_at is None:
                serving.start_soon(self.queries.ping)
        if session.ready_at is None:
            session.failure = f"The model made no progress in loading for {self.limits.load_timeout:g} s."
        else:
            stalled = "had work and finished no step" if self.exchange.oldest_sent_at is not None else "did not answer"
            session.failure = f"The engine {stalled} for {self.limits.stall_timeout:g} s."
            self.board.change(EngineState.STALLED, session.failure)
        session.process.kill()
        serving.cancel_scope.cancel()

    def _deadline(self, session: _Session) -> float:
        oldest = self.exchange.oldest_sent_at
        return self.limits.deadline(
            ready=session.ready_at is not None,
            progress_at=session.progress_at,
            oldest_sent_at=self.queries.pinged_at if oldest is None else oldest,
            now=self._clock(),
        )

    def _receive(self, session: _Session, message: Message, now: float, *, last: bool) -> None:
        match message:
            case Step(events, metrics):
                self._record_metrics(session, metrics, now)
                self.exchange.deliver(events, now, last=last)
            case Accepted():
                self.exchange.accept(message)
            case Refused():
                self.exchange.refuse(message, self.metrics)
            case Answered() | QueryFailed():
                self._resolve(session, message, now)
            case Working():
                session.progress_at = now
            case Loading(progress):
                self._record_progress(session, progress, now)
            case Loaded(model):
                self._record_loaded(session, model, now)
            case LoadFailed(reason):
                session.failure, session.refused = reason, True
            case _:
                raise ValueError(f"{type(message).__name__} is not a message from an engine")

    def _resolve(self, session: _Session, reply: Answered | QueryFailed, now: float) -> None:
        if isinstance(reply, Answered) and isinstance(reply.answer, Inspected):
            self._record_metrics(session, reply.answer.metrics, now)
        self.queries.resolve(reply)

    def _record_metrics(self, session: _Session, metrics: EngineMetrics, now: float) -> None:
        """Record metrics. Of them only a finished step is progress: other threads answer when the step thread hangs."""
        self.metrics = metrics
        self.totals.record(metrics)
        if metrics.steps > session.steps:
            session.steps = metrics.steps
            session.progress_at = now

    def _record_progress(self, session: _Session, progress: float, now: float) -> None:
        if progress > self.board.latest.progress:
            session.progress_at = now
            self.board.post(replace(self.board.latest, progress=progress))

    def _record_loaded(self, session: _Session, model: ModelInfo, now: float) -> None:
        if self.model is not None:
            logger.info("engine process replaced", extra={"file": self.file, "context": model.context})
        elif self._repack_crashed or model.repacked:
            self._repack_cache.record(works=not self._repack_crashed)
        self.model = model
        self._config = replace(self._config, earlier_context=model.cells // model.slots)
        session.ready_at = now
        self._loading.end(anyio.current_time())
        self.board.change(EngineState.READY, "The model is loaded.", progress=1.0)
        self.exchange.connect(session.process.send)
        self.queries.connect(session.process.send)

    def _disable_repack(self, code: int | None) -> None:
        self._config = replace(self._config, repack=False)
        self._repack_crashed = True
        logger.warning(
            "loading the model again without weights repacked for this CPU, which may make it slower",
            extra={"why": describe_exit(code)},
        )
        self.board.change(EngineState.LOADING, "The model is loading, without repacked weights.", restarts=1)

    async def _replace(self, reason: str, steps: int = 0, ready: float = 0.0, *, refused: bool = False) -> bool:
        """Wait for the backoff before the next process. Returns False if no process follows."""
        detail = without_folders(reason, self._config)
        if self.model is None:
            self.board.change(EngineState.FAILED, detail, cause=reason)
            return False
        self._delay = self.limits.backoff(self._delay, steps=steps, ready=ready)
        self._loading.begin(anyio.current_time() + self._delay)
        logger.error("engine process lost", extra={"file": self.file, "why": reason, "restart_in_s": self._delay})
        restarts, cause = self.board.latest.restarts + 1, reason if refused else ""
        self.board.change(EngineState.RESTARTING, detail, restarts=restarts, cause=cause)
        await anyio.sleep(self._delay)
        return True
