"""An engine that only describes its model."""

import pytest

from engine import DescribedEngine, GenerationRequest, RunsElsewhereError, Unavailable
from tests.gateway.fake_engine import MODEL

pytestmark = pytest.mark.anyio


async def test_it_passes_requests_on_and_serves_nothing() -> None:
    engine, request = DescribedEngine(), GenerationRequest(id="r", prompts=("a",))
    engine.describe(MODEL)
    assert engine.model is MODEL
    with pytest.raises(RunsElsewhereError) as elsewhere:
        engine.generate(request)
    assert elsewhere.value.request is request
    with pytest.raises(Unavailable):
        await engine.tokenize(["a"], special=True, begin=True, take=lambda _run: None)
    with pytest.raises(Unavailable):
        await engine.inspect()
