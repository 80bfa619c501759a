"""Re-ranking over real sockets: a real model, and clients that leave."""

from pathlib import Path

import httpx
import pytest

from tests.program import GUARD, serving_program
from tests.random_ranker import write_random_ranker
from tests.system.served import PASS, post, serving
from tests.system.test_embeddings import is_under_way, nothing_is_embedded_any_more

DOCUMENTS = ["a cat is an animal", "the sun", "what is a cat"]


def test_a_real_model_ranks_and_does_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "ranker.gguf"
    write_random_ranker(path)
    with serving_program("--model", str(path)) as (_process, port):
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=GUARD)
        results = client.post("/v1/rerank", json={"query": "cat", "documents": DOCUMENTS}).json()["results"]
        assert sorted(result["index"] for result in results) == [0, 1, 2]
        scores = [result["relevance_score"] for result in results]
        assert scores == sorted(scores, reverse=True)
        assert 0 < scores[-1] < scores[0] < 1
        for other, body in (("embeddings", {"input": "a"}), ("completions", {"prompt": "a"})):
            refused = client.post(f"/v1/{other}", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_model")
        client.close()


@pytest.mark.anyio
async def test_a_hang_up_frees_all_documents() -> None:
    async with serving(seconds_per_pass=PASS, slots=2, grace=0.0, pooling="rank") as served:
        client = await served.send(post("rank", "/v1/rerank", query="cat", documents=["x" * 64] * 2000))
        await served.until(lambda _, f: is_under_way(f))
        client.close()
        await nothing_is_embedded_any_more(served)
