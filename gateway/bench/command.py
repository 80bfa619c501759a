"""The command `llama-gateway bench`: reads the arguments, measures each stage, and reports."""

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import anyio
import orjson
from anyio.abc import TaskStatus
from tqdm import tqdm

from gateway.arguments import ExitCode, exit_with
from gateway.bench import plot, table
from gateway.bench.arguments import TERMINAL, Arguments, read_arguments
from gateway.bench.load import run_clients
from gateway.bench.models import NoModel, Unreachable, only_model
from gateway.bench.outcome import Outcome
from gateway.bench.summary import Summary, summarise
from gateway.signals import end_by

JSON_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


def bench(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the benchmark and return its exit code.

    Args:
        arguments: the command line without the command's name.
        environment: has the default of the API key.
    """
    return anyio.run(Bench(read_arguments(arguments, environment)).run, backend="trio")


class Bench:
    """One run over all stages. Prints the metrics of each stage as soon as it ends."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._begun = datetime.now(UTC)
        self._model = arguments.model
        self._summaries: list[Summary] = []
        self._code = ExitCode.INTERRUPTED

    async def run(self) -> ExitCode:
        """Measure all stages, or until a signal arrives; then report and return the exit code. Waits for the server."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(_cancel_on_signal, tasks.cancel_scope)
            self._code = await self._measure()
            tasks.cancel_scope.cancel()
        if self._summaries:
            self._report()
        return self._code

    async def _measure(self) -> ExitCode:
        given = self._arguments
        try:
            self._model = self._model or await only_model(given.target, given.timeout)
        except Unreachable as error:
            return exit_with(ExitCode.SETTINGS, f"cannot reach {given.url}: {error}", "bench")
        except NoModel as error:
            message = f"cannot choose a model of {given.url}; {error}"
            return exit_with(ExitCode.SETTINGS, message, "bench")
        _print(table.title(given, self._model))
        _print(table.head())
        posts = (given.target.post(given.workload.route, body) for body in given.workload.bodies(self._model))
        for clients in given.clients:
            await self._measure_stage(clients, islice(posts, given.requests))
        return ExitCode.FAILURES if any(summary.failures for summary in self._summaries) else ExitCode.DONE

    async def _measure_stage(self, clients: int, posts: Iterator[bytes]) -> None:
        given = self._arguments
        clients = min(clients, given.requests)  # more would have nothing to send
        outcomes: list[Outcome] = []
        bar = tqdm(
            total=given.requests, desc=table.counted(clients, "client"), unit="request", leave=False, disable=None
        )

        def record(outcome: Outcome) -> None:
            outcomes.append(outcome)
            bar.update()

        try:
            await run_clients(
                given.target,
                posts,
                clients=clients,
                streamed=given.workload.stream,
                answer_timeout=given.timeout,
                on_outcome=record,
            )
        finally:  # after an interrupt, too: report the requests that ended
            bar.close()
            if outcomes:
                self._add(summarise(clients, outcomes))

    def _add(self, summary: Summary) -> None:
        """Keep the summary of a stage, and print it."""
        self._summaries.append(summary)
        _print(table.row(summary))
        for note in table.notes(summary):
            _print(f"{'':9}{note}")

    def _report(self) -> None:
        given = self._arguments
        if given.json:
            given.json.write_bytes(orjson.dumps(self._metrics(), option=JSON_OPTIONS))
        if given.plot == TERMINAL:
            _print("\n" + plot.draw_text(self._summaries))
        elif given.plot:
            plot.write_png(self._summaries, given.plot)

    def _metrics(self) -> dict[str, Any]:
        given = self._arguments
        return {
            "url": given.url,
            "model": self._model,
            "begun": self._begun.isoformat(timespec="seconds"),
            "interrupted": self._code is ExitCode.INTERRUPTED,
            "requests": given.requests,
            **asdict(given.workload),
            "stages": [asdict(summary) for summary in self._summaries],
        }


async def _cancel_on_signal(scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
    """Cancel the scope on SIGINT or SIGTERM. A second signal ends the process at once."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for received in signals:
            if scope.cancel_called:
                end_by(received)
            scope.cancel()


def _print(text: str) -> None:
    """Print a line and flush, so that a pipe gets it at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
