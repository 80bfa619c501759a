"""Sampling of requests that do not choose it."""

from dataclasses import replace

import pytest

from gateway.serving.sampling_defaults import SamplingDefaults
from tests.gateway.application import app_of
from tests.gateway.asgi import post
from tests.gateway.fake_engine import MODEL, FakeEngine

RECOMMENDING = replace(MODEL, sampling={"temperature": "0.6", "top_k": "20", "repeat_last_n": "32"})


def test_the_operators_choice_comes_first_then_the_file_then_another_server() -> None:
    defaults = SamplingDefaults({"temperature": 0.1}, {"temperature": 0.8, "top_k": 40, "min_p": 0.05})
    assert defaults.for_model(None) == {"temperature": 0.1, "top_k": 40, "min_p": 0.05}
    recommended = {"temperature": 0.1, "top_k": 20, "repeat_last_n": 32, "min_p": 0.05}
    assert defaults.for_model(RECOMMENDING) == recommended
    assert defaults.for_model(RECOMMENDING) is defaults.for_model(RECOMMENDING)
    assert defaults.for_model(MODEL) == {"temperature": 0.1, "top_k": 40, "min_p": 0.05}


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/completions", "/completion", "/generate", "/api/generate"])
async def test_a_request_that_does_not_choose_is_sampled_as_the_file_recommends(path: str) -> None:
    engine = FakeEngine()
    engine.model = RECOMMENDING
    reply = await post(app_of(engine, top_k=5), path, {"model": "tiny", "prompt": "x", "stream": False, "raw": True})
    assert reply.status == 200
    sampling = engine.generations[0].request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.repeat_last_n) == (0.6, 5, 32)


@pytest.mark.anyio
async def test_the_clients_choice_comes_before_the_file() -> None:
    engine = FakeEngine()
    engine.model = RECOMMENDING
    body = {"prompt": "x", "temperature": 1.5, "repetition_penalty": 1.1}
    assert (await post(app_of(engine), "/v1/completions", body)).status == 200
    sampling = engine.generations[0].request.sampling
    assert (sampling.temperature, sampling.top_k) == (1.5, 20)
    assert (sampling.repeat_penalty, sampling.repeat_last_n) == (1.1, -1)  # vLLM's counts the whole text
