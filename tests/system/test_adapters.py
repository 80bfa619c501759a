"""LoRA adapters with real servers and OpenAI's own client: each answer is that of the adapter alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from openai import AsyncOpenAI

from tests.backends import WITH_SDK
from tests.models import model_path
from tests.random_adapter import write_adapter, write_merged
from tests.system.served import GUARD, LONG_PROMPT, MANY, PASS, Served, ask, completion, post, serving

pytestmark = WITH_SDK

PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "extra_body": {"ignore_eos": True}}
SEEDS = {"one": 10, "two": 11}
ONE: dict[str, Any] = {"lora": [{"id": 0, "scale": 1}]}
"""The fake model has two adapters."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    for name, seed in SEEDS.items():
        write_adapter(folder / f"{name}.gguf", model_path(), seed)
        write_merged(folder / f"{name}-merged.gguf", model_path(), [(seed, 1.0)])
    return folder


@asynccontextmanager
async def client_of(served: Served) -> AsyncIterator[AsyncOpenAI]:
    url = f"http://127.0.0.1:{served.port}/v1"
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=GUARD) as client:
        yield client


async def test_each_model_name_answers_as_its_merged_model_does_while_all_are_busy(folder: Path) -> None:
    alone = {}
    for name, model in {"": model_path(), **{f":{name}": folder / f"{name}-merged.gguf" for name in SEEDS}}.items():
        async with serving(model=model) as served:
            alone[f"m{name}"] = (await ask(served, max_tokens=24))["choices"][0]["text"]
    assert len(set(alone.values())) == 3
    flags = tuple(str(folder / f"{name}.gguf") for name in SEEDS)
    async with serving(lora=flags, alias="m", slots=6) as served:
        async with client_of(served) as client:
            names = [model.id async for model in client.models.list()]
            assert names == ["m", "m:one", "m:two"]
            answers: list[tuple[str, str]] = []

            async def stream(name: str) -> None:
                chunks = await client.completions.create(model=name, stream=True, **GREEDY)
                answers.append((name, "".join([chunk.choices[0].text async for chunk in chunks if chunk.choices])))

            async with anyio.create_task_group() as tasks:
                for name in names * 3:
                    tasks.start_soon(stream, name)
            assert sorted(answers) == sorted(list(alone.items()) * 3)
            by_id = await client.completions.create(model="m", **(GREEDY | {"extra_body": {"ignore_eos": True, **ONE}}))
            assert by_id.choices[0].text == alone["m:one"]
            await client.close()
        await served.until_idle()


async def test_an_unknown_id_is_a_400_that_names_the_field() -> None:
    async with serving(seconds_per_pass=0.0) as served:
        answer = await served.answer(post("a", "/v1/completions", prompt="x", lora=[{"id": 2, "scale": 1}]))
        assert answer.status == 400
        assert b'"param":"lora"' in answer.body
        assert b"the ids are 0 to 1" in answer.body


@pytest.mark.parametrize(
    ("state", "body"),
    [("prefill", {"prompt": LONG_PROMPT, "max_tokens": 5}), ("decode", {"max_tokens": MANY})],
    ids=["prefill", "decode"],
)
async def test_a_client_that_leaves_frees_its_slot_beside_another_set(state: str, body: dict[str, Any]) -> None:
    async with serving(seconds_per_pass=PASS) as served:
        neighbour = await served.send(completion("neighbour", max_tokens=MANY, stream=True))
        await served.until_in("decode", "neighbour")
        leaver = await served.send(completion("leaver", **ONE, **body))
        await served.until_in(state, "leaver")
        leaver.close()
        await served.until_gone("leaver")
        metrics = await served.until(lambda _, found: found.held == 1)
        assert metrics.cached_tokens == 0
        neighbour.close()
        await served.until_idle()


async def test_a_client_that_waits_for_a_slot_can_leave() -> None:
    async with serving(seconds_per_pass=PASS) as served:
        busy = [served.client() for _ in range((await served.metrics()).slots)]
        for at, client in enumerate(busy):
            await client.send(completion(f"busy-{at}", max_tokens=MANY, stream=True))
            await served.until_in("decode", f"busy-{at}")
        waiting = await served.send(completion("waiting", **ONE))
        await served.until(lambda _, found: found.waiting == 1)
        waiting.close()
        await served.until(lambda _, found: not found.waiting)
        for client in busy:
            client.close()
        await served.until_idle()
