"""An engine process with the fakes, with passes of any duration: real pipes, threads and frames."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack

from engine.config import EngineConfig
from engine.core.step import StepPlan
from engine.testing.fake_embedder import FakeEmbedder
from engine.testing.fake_model import FakeModel, letters
from engine.testing.fake_runner import FakeRunner
from engine.worker.loaded import LoadedModel
from engine.worker.pipes import MessageReader, MessageWriter
from engine.worker.worker import serve


def count_letters(tokens: list[int]) -> int:
    """Return a lower-case letter that depends on the number of tokens."""
    return ord("a") + len(tokens) % 26


def main() -> None:
    """Serve messages as the real engine does.

    The first argument is the duration of a pass in seconds. With `counting` as a second one, the next token is cheap to
    choose: it depends on the number of tokens only.
    """
    seconds = float(sys.argv[1])
    script = count_letters if sys.argv[2:] == ["counting"] else letters

    def load(config: EngineConfig, progress: Callable[[float], None], _stack: ExitStack) -> LoadedModel:
        model = FakeModel(slots=config.slots, context=config.context or 65_536, ranks=config.pooling == "rank")
        runner = FakeRunner(model, script=script)
        embedder = FakeEmbedder(cells=65_536)

        def take_time(_plan: StepPlan) -> None:
            runner.aborted.wait(seconds)

        def take_as_long() -> None:
            embedder.aborted.wait(seconds)

        runner.on_pass = take_time
        embedder.on_pass = take_as_long
        progress(1.0)
        return LoadedModel(model, runner, embedder.limits, lambda _cells: embedder)

    serve(MessageReader(0), MessageWriter(1), load)
    os._exit(0)
