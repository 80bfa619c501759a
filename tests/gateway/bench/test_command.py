"""The whole benchmark: its output, files and exit codes."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import orjson
import pytest

from gateway.arguments import ExitCode
from gateway.bench.arguments import read_arguments
from gateway.bench.command import Bench
from gateway.program import main
from tests.gateway.bench.scripted import DONE, Peer, Request, Script, scripted, stream, text, usage, whole
from tests.repeat import first

ROOT = Path(__file__).parents[3]
GUARD = 20


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return ["--json", str(tmp_path / "figures.json"), "--plot", str(tmp_path / "plot.png")]


def refusing(every: int) -> Script:
    """Return a script that lists a model, and refuses one of so many completions."""
    asked = 0

    async def script(request: Request, peer: Peer) -> None:
        nonlocal asked
        if request.line.startswith("GET"):
            await peer.send(whole({"data": [{"id": "tiny"}]}))
            return
        asked += 1
        failed = asked % every == 0
        answer = whole({"error": {"message": "full"}}, 429) if failed else stream(text(), text(), usage(2), DONE)
        await peer.send(answer)

    return script


async def run(script: Script, *given: str) -> tuple[ExitCode, list[Request]]:
    async with scripted(script) as server:
        with anyio.fail_after(GUARD):
            arguments = read_arguments(["--url", server.url(), "--seed", "1", *given], {"OPENAI_API_KEY": "secret"})
            return await Bench(arguments).run(), server.requests


@pytest.mark.anyio
async def test_stages_run_in_order_and_are_printed_and_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: list[str]
) -> None:
    code, requests = await run(refusing(5), "--clients", "1,3", "--requests", "4", *files)
    assert (code, len(requests)) == (ExitCode.FAILURES, 9)
    assert {request.body["model"] for request in requests[1:]} == {"tiny"}
    assert len({request.body["prompt"] for request in requests[1:]}) == 8
    out = capsys.readouterr().out
    title, _, names, first, second, note = out.splitlines()
    assert title.startswith("tiny at http://127.0.0.1:")
    assert names.split()[:3] == ["clients", "done", "tokens/s"]
    assert (first.split()[:2], second.split()[:2]) == (["1", "4/4"], ["3", "3/4"])
    assert note.strip() == "1 failed, status 429: full"

    figures = orjson.loads((tmp_path / "figures.json").read_bytes())
    assert (figures["model"], figures["interrupted"], figures["seed"], figures["endpoint"]) == (
        "tiny",
        False,
        1,
        "completions",
    )
    assert [(stage["clients"], stage["succeeded"], stage["tokens"]) for stage in figures["stages"]] == [
        (1, 4, 8),
        (3, 3, 6),
    ]
    assert figures["stages"][1]["failures"] == [{"kind": "status 429", "words": "full", "count": 1}]
    assert figures["stages"][0]["end_to_end"].keys() == {"count", "mean", "p50", "p90", "p99", "max"}
    assert "secret" not in (tmp_path / "figures.json").read_text()
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.anyio
async def test_a_run_without_failures_plots_in_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    code, requests = await run(refusing(99), "--model", "mine", "--clients", "2", "--requests", "2", "--plot")
    assert (code, len(requests)) == (ExitCode.DONE, 2)
    assert requests[0].body["model"] == "mine"
    assert "(tokens/s) ^" in capsys.readouterr().out


@pytest.mark.anyio
async def test_a_stage_has_no_more_clients_than_requests(capsys: pytest.CaptureFixture[str]) -> None:
    await run(refusing(99), "--model", "mine", "--clients", "100", "--requests", "2")
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["2", "2/2"]


@pytest.mark.anyio
async def test_an_unreadable_model_list_is_one_line_and_2(capsys: pytest.CaptureFixture[str], files: list[str]) -> None:
    async def script(_: Request, peer: Peer) -> None:
        await peer.send(whole({"error": {"message": "Wrong key."}}, 401))

    code, _ = await run(script, *files)
    said = capsys.readouterr()
    assert (code, said.out) == (ExitCode.SETTINGS, "")
    remedy = "send its key by --api-key, or by the variable OPENAI_API_KEY"
    assert said.err.endswith(f"/v1; {remedy}: status 401: Wrong key.\n")
    assert said.err.count("\n") == 1
    assert not [name for name in files if Path(name).exists()]  # noqa: ASYNC240 - a test has time


@pytest.mark.anyio
async def test_a_server_that_does_not_run_is_one_line_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    code = await Bench(read_arguments(["--url", url], {})).run()
    said = capsys.readouterr()
    assert (code, said.out) == (ExitCode.SETTINGS, "")
    assert said.err == f"llama-gateway bench: cannot reach {url}: Connection refused\n"


@pytest.mark.anyio
@pytest.mark.parametrize("number", first(1, [signal.SIGINT, signal.SIGTERM]))
async def test_a_signal_ends_the_run_with_its_measurements(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: list[str], number: signal.Signals
) -> None:
    answered = 0

    async def script(_: Request, peer: Peer) -> None:
        nonlocal answered
        answered += 1
        if answered == 6:
            os.kill(os.getpid(), number)
        if answered >= 6:
            await anyio.sleep_forever()
        await peer.send(stream(text(), usage(1), DONE))

    code, _ = await run(script, "--model", "tiny", "--clients", "1,2,4", "--requests", "4", *files)
    assert code == ExitCode.INTERRUPTED
    figures = orjson.loads((tmp_path / "figures.json").read_bytes())
    assert figures["interrupted"]
    assert [(stage["clients"], stage["requests"]) for stage in figures["stages"]] == [(1, 4), (2, 1)]
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[3:]] == [["1", "4/4"], ["2", "1/1"]]


def test_the_program_has_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--requests", "none"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("llama-gateway bench: argument --requests: ")
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "bench" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("started", "unwanted"),
    [("gateway.program", "gateway.bench"), ("gateway.bench.command", ("matplotlib", "plotille"))],
)
def test_a_start_imports_no_more_than_it_needs(started: str, unwanted: str | tuple[str, ...]) -> None:
    code = f"import sys, {started}; sys.exit(any(name.startswith({unwanted!r}) for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
