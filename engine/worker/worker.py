"""The engine's process: it owns one model and answers messages on its pipes until the gateway is gone.

Four threads. The main one reads, so that a cancel is heard at any time; one takes requests in; one loads the model
and steps, and nothing else touches llama.cpp's context; one writes, while the next pass runs.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from engine import logs
from engine.config import EngineConfig
from engine.errors import LoadError
from engine.events import EngineMetrics, Event, Released
from engine.protocol.messages import (
    Answered,
    Ask,
    Cancel,
    CancelQuery,
    Configure,
    Embed,
    FromEngine,
    Generate,
    Inspect,
    Inspected,
    Loaded,
    LoadFailed,
    Loading,
    Message,
    Step,
)
from engine.worker.intake import Intake
from engine.worker.loaded import LoadedModel
from engine.worker.loop import StepLoop
from engine.worker.pipes import MessageReader, MessageWriter

logger = logging.getLogger(__name__)

EXIT_OK, EXIT_LOAD_FAILED, EXIT_FAULT = 0, 3, 70
STOP_SECONDS = 2.0
"""How long the gateway's end may wait for the step thread to free the model, before the process just exits."""


Write = Callable[[FromEngine], None]
Load = Callable[[EngineConfig, Callable[[float], None], ExitStack], LoadedModel]


@dataclass(frozen=True, slots=True)
class _Serving:
    """What there is once the model is loaded."""

    loop: StepLoop
    intake: Intake
    takes_in: threading.Thread


class Worker:
    """Serves one model: loads it, then answers messages with messages."""

    def __init__(self, config: EngineConfig, load: Load, write: Write, on_exit: Callable[[int], None]) -> None:
        """`load` opens a model, whose parts are closed through the stack, and reports progress from 0 to 1.

        `on_exit` must end the process with a code; it is called from the thread that can go no further.
        """
        self._config = config
        self._load = load
        self._write = write
        self._on_exit = on_exit
        self._steps = threading.Thread(target=self.guard, args=(self._load_and_step,), name="steps", daemon=True)
        self._serving: _Serving | None = None

    def start(self) -> None:
        """Begin to load. `Loaded` or `LoadFailed` tells the end of it."""
        self._steps.start()

    def receive(self, message: Message) -> None:
        """Answer one message. Raises `RuntimeError` for one that may not come now."""
        if self._serving is None:
            raise RuntimeError(f"{type(message).__name__} before the model is loaded")
        loop, intake = self._serving.loop, self._serving.intake
        match message:
            case Generate() | Embed():
                intake.submit(message)
            case Ask(query_id, Inspect()):
                self._write(Answered(query_id, Inspected(*loop.inspect())))
            case Ask():
                intake.ask(message)
            case CancelQuery(query_id):
                intake.cancel_query(query_id)
            case Cancel(key):
                if intake.withdraw(key):
                    self._publish([(key, Released("intake", 0, 0))], loop.metrics())
                else:
                    loop.cancel(key)
            case _:
                raise RuntimeError(f"{type(message).__name__} is no message to a loaded engine")

    def stop(self) -> None:
        """End stepping and free the model, in bounded time. While loading, returns at once.

        The intake ends first, because it uses the model that the step thread frees.
        """
        if self._serving is not None:
            self._serving.intake.stop()
            self._serving.takes_in.join(STOP_SECONDS)
            if not self._serving.takes_in.is_alive():
                self._serving.loop.stop()
                self._steps.join(STOP_SECONDS)

    def _load_and_step(self) -> None:
        with ExitStack() as stack:
            loaded = self._load(self._config, lambda share: self._write(Loading(share)), stack)
            lanes = loaded.lanes(self._config)
            loop = StepLoop(lanes.values(), self._publish)
            intake = Intake(loaded.model, lanes, loop, self._write)
            takes_in = threading.Thread(target=self.guard, args=(intake.run,), name="intake", daemon=True)
            takes_in.start()
            self._serving = _Serving(loop, intake, takes_in)
            self._write(Loaded(loaded.model.info))
            loop.run()

    def _publish(self, news: Iterable[tuple[int, Event]], metrics: EngineMetrics) -> None:
        self._write(Step(tuple(news), metrics))

    def guard(self, work: Callable[[], None]) -> None:
        """Run a thread's work; whatever it cannot handle ends the process, and the gateway starts a new one."""
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
    """Be an engine until the other side is gone. The first message must be `Configure`."""
    match messages.read():
        case []:
            return
        case [Configure(config)]:
            pass
        case wrong:
            raise RuntimeError(f"the first message must be Configure alone, not {wrong}")
    logs.configure(config.log_level, config.log_format)

    def leave(code: int) -> None:
        writer.close(STOP_SECONDS)
        os._exit(code)

    worker = Worker(config, load, writer.write, leave)
    threading.Thread(target=worker.guard, args=(writer.run,), name="writer", daemon=True).start()
    worker.start()
    while batch := messages.read():
        for message in batch:
            worker.receive(message)
    worker.stop()
