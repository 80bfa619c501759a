"""Worker of the engine process: owns one model and serves messages on its pipes until the gateway closes them.

The main thread reads messages, so that it receives a cancel at any time. The intake threads validate requests and
answer queries, one thread for each kind of effort. The step thread loads the model and runs the steps; only it uses
llama.cpp's context. During the next step another thread applies the result of the last one, and the writer thread sends
messages.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from engine import logs
from engine.config import EngineConfig
from engine.errors import LoadError
from engine.events import Event, Released
from engine.info import EngineMetrics
from engine.protocol.messages import (
    Answered,
    Ask,
    Cancel,
    CancelQuery,
    Configure,
    Embed,
    EndReasoning,
    FromEngine,
    Generate,
    HeldPrefixes,
    Inspect,
    Inspected,
    InspectPrefixes,
    InspectQueue,
    KeepSlot,
    Loaded,
    LoadFailed,
    Loading,
    Message,
    QueueOrder,
    SetLogLevel,
    Step,
    Working,
)
from engine.request import GenerationRequest
from engine.worker.intake import Intake
from engine.worker.lanes.generation import GenerationLane
from engine.worker.loaded import LoadedModel
from engine.worker.loop import StepLoop
from engine.worker.pipes import MessageReader, MessageWriter
from engine.worker.progress import Progress
from engine.worker.slices import Effort
from engine.worker.slot_files import SlotFiles

logger = logging.getLogger(__name__)

EXIT_OK, EXIT_LOAD_FAILED, EXIT_FAULT = 0, 3, 70
STOP_SECONDS = 2.0
"""Maximum wait for the step thread to free the model after the gateway has ended; then the process exits anyway."""
FLUSH_SECONDS = 2.5
"""Maximum wait for prefixes to be written to disk, if they are."""


Write = Callable[[FromEngine], None]
Load = Callable[[EngineConfig, Callable[[float], None], ExitStack], LoadedModel]


@dataclass(frozen=True, slots=True)
class _Serving:
    """Components that exist after the model is loaded."""

    loop: StepLoop
    """Step loop of all lanes."""
    intake: Intake
    """Intake of requests and queries."""
    generation: GenerationLane | None
    """Lane of the generation requests; unset for a model that only computes embeddings."""
    slot_files: SlotFiles
    """Saves, restores and erases slots."""
    intake_threads: tuple[threading.Thread, ...]
    """Threads that run `intake`."""


class Worker:
    """Loads one model and serves messages."""

    def __init__(self, config: EngineConfig, load: Load, write: Write, on_exit: Callable[[int], None]) -> None:
        """Create a worker; `start` loads the model.

        Args:
            config: Configuration of the engine.
            load: Opens the model, registers its parts in the stack, and reports progress from 0 to 1.
            write: Sends a message to the gateway. Thread-safe.
            on_exit: Ends the process with an exit code. Called from the thread that failed.
        """
        self._config = config
        self._load = load
        self._write = write
        self._on_exit = on_exit
        self._step_thread = threading.Thread(target=self.guard, args=(self._load_and_step,), name="steps", daemon=True)
        self._serving: _Serving | None = None

    def start(self) -> None:
        """Start to load the model. `Loaded` or `LoadFailed` is sent at the end."""
        self._step_thread.start()

    def receive(self, message: Message) -> None:
        """Process one message.

        Raises:
            RuntimeError: The message is not valid in this state.
        """
        if isinstance(message, SetLogLevel):
            logging.getLogger().setLevel(message.level.upper())
            return
        if self._serving is None:
            raise RuntimeError(f"{type(message).__name__} before the model is loaded")
        loop, intake = self._serving.loop, self._serving.intake
        match message:
            case Generate() | Embed():
                intake.submit(message)
            case Ask():
                self._ask(message, self._serving)
            case CancelQuery(query_id):
                intake.cancel_query(query_id)
                self._serving.slot_files.cancel(query_id)
            case Cancel(key):
                if intake.cancel_request(key):
                    loop.publish([(key, Released("intake", 0, 0))])
                else:
                    loop.cancel(key)
            case EndReasoning(key) if (lane := self._serving.generation) is not None:
                loop.locked(partial(lane.scheduler.end_reasoning, key))
            case _:
                raise RuntimeError(f"{type(message).__name__} is not a message to a loaded engine")

    def _ask(self, message: Ask, serving: _Serving) -> None:
        match message.query:
            case Inspect():
                serving.loop.inspect(lambda *state: self._write(Answered(message.query_id, Inspected(*state))))
            case InspectQueue():
                self._write(Answered(message.query_id, QueueOrder(serving.loop.queue())))
            case InspectPrefixes(most):
                self._write(Answered(message.query_id, HeldPrefixes(serving.loop.held(most))))
            case KeepSlot() as query:
                serving.slot_files.submit(message.query_id, query)
            case _:
                serving.intake.ask(message)

    def stop(self) -> None:
        """Stop the step loop and free the model, in bounded time. Returns at once while the model is loading.

        The intake ends first, because it uses the model that the step thread frees.
        """
        if self._serving is not None:
            self._serving.intake.stop()
            deadline = time.monotonic() + STOP_SECONDS
            for thread in self._serving.intake_threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            if not any(thread.is_alive() for thread in self._serving.intake_threads):
                self._serving.loop.stop()
                self._step_thread.join(STOP_SECONDS + (FLUSH_SECONDS if self._config.prefix_dir else 0.0))

    def _load_and_step(self) -> None:
        with ExitStack() as stack:
            loaded = self._load(self._config, lambda share: self._write(Loading(share)), stack)
            self.guard(partial(self._step, loaded))  # a fault ends the process while other threads use the model

    def _step(self, loaded: LoadedModel) -> None:
        """Serve with a loaded model until `stop`."""
        self._serving = serving = self._serve(loaded)
        if loaded.files and (lane := serving.generation):
            loaded.files.start(lambda report: serving.loop.locked(partial(lane.scheduler.ledger.record, report)))
        self._write(Loaded(loaded.model.info))
        serving.loop.run()
        if loaded.files:
            serving.loop.write_rest(loaded.files, FLUSH_SECONDS)

    def _serve(self, loaded: LoadedModel) -> _Serving:
        """Start the intake of a loaded model."""
        progress = Progress()
        lanes = loaded.lanes(self._config, partial(self._go_on, progress))
        loop = StepLoop(lanes.values(), self._publish, progress)
        most = self._config.queue_limit + loaded.model.info.slots  # no more can be queued
        intake = Intake(loaded.model, lanes, loop, self._write, most=most, progress=progress)
        threads = tuple(
            threading.Thread(
                target=self.guard, args=(partial(intake.run, effort),), name=f"intake ({effort.value})", daemon=True
            )
            for effort in Effort
        )
        for thread in threads:
            thread.start()
        lane = lanes.get(GenerationRequest)
        generation = lane if isinstance(lane, GenerationLane) else None
        states = generation.slot_states if generation else None
        slot_files = SlotFiles(states, loaded.fingerprint, loop, self._write)
        return _Serving(loop, intake, generation, slot_files, threads)

    def _go_on(self, progress: Progress) -> None:
        """Record that the current step goes on, and report it."""
        progress.go_on()
        if progress.should_report():
            self._write(Working())

    def _publish(self, news: Iterable[tuple[int, Event]], metrics: EngineMetrics) -> None:
        self._write(Step(tuple(news), metrics))

    def guard(self, work: Callable[[], None]) -> None:
        """Run the work of a thread. An unhandled exception ends the process, and the gateway starts a new one."""
        try:
            work()
        except BrokenPipeError:
            self._on_exit(EXIT_OK)
        except LoadError as error:
            self._write(LoadFailed(error.message))
            self._on_exit(EXIT_LOAD_FAILED)
        except BaseException:
            logger.critical("the engine's %s thread failed", threading.current_thread().name, exc_info=True)
            self._on_exit(EXIT_FAULT)


def serve(messages: MessageReader, writer: MessageWriter, load: Load) -> None:
    """Run the engine until the gateway closes the pipe.

    Raises:
        RuntimeError: The first message is not `Configure`, or another message is not valid in its state.
    """
    match messages.read():
        case []:
            return
        case [Configure(config), *others]:
            pass
        case wrong:
            raise RuntimeError(f"the first message must be Configure, not {wrong}")
    logs.configure(config.log_level, config.log_format, {"model": lambda: config.log_name})

    def leave(code: int) -> None:
        writer.close(STOP_SECONDS)
        logging.shutdown()
        os._exit(code)

    worker = Worker(config, load, writer.write, leave)
    threading.Thread(target=worker.guard, args=(writer.run,), name="writer", daemon=True).start()
    worker.start()
    for message in others:
        worker.receive(message)
    while batch := messages.read():
        for message in batch:
            worker.receive(message)
    worker.stop()
