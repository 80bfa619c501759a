"""An engine process with the fakes, with passes of any duration: real pipes, threads and frames."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack

from engine.config import EngineConfig
from engine.core.step import StepPlan
from engine.testing.fake_embedder import FakeEmbedder
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from engine.worker.loaded import LoadedModel
from engine.worker.pipes import MessageReader, MessageWriter
from engine.worker.worker import serve


def main() -> None:
    """Serve messages as the real engine does. The argument is the duration of a pass in seconds."""
    seconds = float(sys.argv[1])

    def load(config: EngineConfig, progress: Callable[[float], None], _stack: ExitStack) -> LoadedModel:
        model = FakeModel(slots=config.slots, context=config.context or 65_536, ranks=config.pooling == "rank")
        runner = FakeRunner(model)
        embedder = FakeEmbedder(cells=65_536)

        def take_time(_plan: StepPlan) -> None:
            runner.aborted.wait(seconds)

        def take_as_long() -> None:
            embedder.aborted.wait(seconds)

        runner.on_pass = take_time
        embedder.on_pass = take_as_long
        progress(1.0)
        return LoadedModel(model, runner, embedder.limits, lambda: embedder)

    serve(MessageReader(0), MessageWriter(1), load)
    os._exit(0)
