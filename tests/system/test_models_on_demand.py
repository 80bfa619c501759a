"""Three models in real engine processes share room for two: every request is served, and every byte returns."""

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import orjson
import pytest

from engine import Engine, EngineConfig, open_engine
from gateway.app import Gateway, create_gateway
from gateway.cli import read_settings
from gateway.residency.memory import Memory
from gateway.residency.policy import Residency
from gateway.residency.residents import Residents
from gateway.residency.terms import ModelTerms, Phase, ResidencyLimits
from gateway.server.limits import ServerLimits
from gateway.server.listen import listen
from gateway.server.server import Server
from tests.backends import GPUS
from tests.failures.processes import resident_bytes
from tests.gateway.server.sockets import Answer, Client
from tests.models import model_path
from tests.program import engines_of
from tests.repeat import TIMES
from tests.system.served import GUARD, completion

pytestmark = pytest.mark.anyio

NAMES = "abc"
CLIENTS, TURNS = 9, 6 * TIMES


@dataclass
class ManyModels:
    """A gateway of three models on a socket."""

    port: int
    gateway: Gateway
    residents: Residents
    most: int = 0
    """Largest number of engine processes that were seen at once."""
    loads: int = 0
    """Number of engines that were opened."""

    async def until(self, holds: Callable[[], bool]) -> None:
        with anyio.fail_after(GUARD):
            while not holds():  # noqa: ASYNC110 - the kernel ends processes, without an event here
                await anyio.sleep(0.01)

    async def ask(self, model: str, tokens: int) -> bytes:
        """Return the body of the answer to one request on a connection of its own."""
        answer = await self.answer(model, tokens)
        assert answer.status == 200, answer.body
        return answer.body

    async def answer(self, model: str, tokens: int) -> Answer:
        """Return the answer to one request on a connection of its own."""
        client = Client(self.port)
        try:
            await client.send(completion("ask", model=model, max_tokens=tokens))
            return await client.answer()
        finally:
            client.close()


@asynccontextmanager
async def many_models(folder: Path) -> AsyncIterator[ManyModels]:
    """Serve three copies of the test model, of which two fit into memory, whatever one takes on this machine."""
    for name in NAMES:
        shutil.copy(model_path(), folder / f"{name}.gguf")
    flags = ("--context", "512", "--threads", "1", "--slots", "4", "--prefix-store", "0")
    settings = read_settings(["serve", "--models-dir", str(folder), *flags], {})
    configs = {model.name: settings.engine_config(model) for model in settings.served}
    need = await memory_of(configs["a"])
    terms = [ModelTerms(name, need) for name in NAMES]
    limits = ResidencyLimits(batch_requests=4, batch_seconds=0.2)

    @asynccontextmanager
    async def counted(name: str) -> AsyncIterator[Engine]:
        served.loads += 1
        async with open_engine(configs[name]) as engine:
            served.most = max(served.most, len(engines_of(os.getpid())))
            yield engine

    residency = Residency(terms, Memory(need.host * 5 // 2, need.gpu * 5 // 2), limits)
    residents = Residents(residency, counted, timeout=GUARD)
    sockets, shutdown = listen("127.0.0.1", 0), anyio.Event()
    gateway = create_gateway(residents.models, settings)
    served = ManyModels(sockets[0].getsockname()[1], gateway, residents)
    server = Server(gateway.app, ServerLimits(connections=64, grace=1))
    async with residents.open(), gateway.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, sockets, shutdown, gateway.health.drain)
        yield served
        shutdown.set()


async def memory_of(config: EngineConfig) -> Memory:
    async with open_engine(config) as engine:
        info = await engine.ready()
        return Memory(info.host_memory, info.gpu_memory)


async def test_unloading_ends_the_process_and_returns_its_memory(tmp_path: Path) -> None:
    async with many_models(tmp_path) as served:
        await served.ask("a", 4)
        (pid,) = engines_of(os.getpid())
        assert resident_bytes(pid) > model_path().stat().st_size
        served.residents.models["a"].unload()
        await served.until(lambda: served.residents.models["a"].account.phase is Phase.UNLOADED)
        assert engines_of(os.getpid()) == []
        await served.ask("a", 4)
        assert engines_of(os.getpid()) not in ([], [pid])


def used_gpu_bytes() -> int:
    """Return the used bytes of NVIDIA's GPUs. In a container their tool may not name the processes that use them."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GUARD)
    return sum(int(line) * 2**20 for line in run.stdout.split())


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="there is no nvidia-smi, and so no GPU to look at")
async def test_unloading_returns_the_gpu_memory_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in GPUS:
        monkeypatch.delenv(name, raising=False)
    async with many_models(tmp_path) as served:
        before = used_gpu_bytes()
        await served.ask("a", 4)
        measured, taken = served.residents.models["a"].account.need.gpu, used_gpu_bytes() - before
        served.residents.models["a"].unload()
        await served.until(lambda: not engines_of(os.getpid()))
        await served.until(lambda: used_gpu_bytes() <= before + taken // 10)
    if not measured:
        pytest.skip("llama.cpp is built without the GPU of this machine")
    assert taken > 0


async def test_a_model_whose_file_and_process_are_gone_answers_at_once_and_heals(tmp_path: Path) -> None:
    async with many_models(tmp_path) as served:
        await served.ask("a", 4)
        file, away = tmp_path / "a.gguf", tmp_path / "away"
        file.rename(away)
        (pid,) = engines_of(os.getpid())
        os.kill(pid, signal.SIGKILL)
        await served.until(lambda: pid not in engines_of(os.getpid()))
        for _ in range(2):  # one waits for the restart, one comes after it
            with anyio.fail_after(GUARD):
                answer = await served.answer("a", 4)
            error = orjson.loads(answer.body)["error"]
            assert (answer.status, error["code"]) == (503, "model_unavailable")
            assert "a.gguf" in error["message"]
            assert str(tmp_path) not in error["message"]
        await served.until(lambda: not engines_of(os.getpid()))
        away.rename(file)
        await anyio.sleep(int(answer.headers["retry-after"]))
        await served.ask("a", 4)


async def test_three_models_share_room_for_two_while_clients_leave(tmp_path: Path) -> None:
    answered = list[str]()

    async def client(served: ManyModels, number: int) -> None:
        for turn in range(TURNS):
            model = NAMES[(number * 2 + turn) % 3]
            if (number + turn) % 4 == 0:
                await leave(served, model, events=turn % 3)
            else:
                body = orjson.loads(await served.ask(model, 8))
                assert (body["model"], body["usage"]["completion_tokens"]) == (model, 8)
                answered.append(model)

    async with many_models(tmp_path) as served:
        with anyio.fail_after(GUARD):
            async with anyio.create_task_group() as tasks:
                for number in range(CLIENTS):
                    tasks.start_soon(client, served, number)
        stays = sum((number + turn) % 4 != 0 for number in range(CLIENTS) for turn in range(TURNS))
        assert len(answered) == stays
        assert served.most <= 2
        assert 3 <= served.loads < stays
        moving = {Phase.LOADING, Phase.UNLOADING}
        await served.until(lambda: not any(served.residents.models[name].account.phase in moving for name in NAMES))
        for name in NAMES:
            served.residents.models[name].unload()
        await served.until(lambda: not engines_of(os.getpid()))


async def leave(served: ManyModels, model: str, events: int) -> None:
    """Ask for a long stream, and close the connection at once or after some of its bytes."""
    client = Client(served.port)
    try:
        await client.send(completion("leave", model=model, max_tokens=400, stream=True))
        for _ in range(events):
            await client.receive()
    finally:
        client.close()
