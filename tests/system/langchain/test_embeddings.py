"""LangChain's `OpenAIEmbeddings`, set to send texts: by default it sends tokens of OpenAI's own vocabulary."""

from typing import Any

import pytest
from langchain_openai import OpenAIEmbeddings

pytestmark = pytest.mark.anyio

TEXTS = ["What is 17 plus 25?", "goodbye"]


@pytest.fixture(scope="module")
def embeddings(options: dict[str, Any]) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(**options, check_embedding_ctx_length=False)


def test_documents_and_a_query_are_embedded(embeddings: OpenAIEmbeddings) -> None:
    documents = embeddings.embed_documents(TEXTS)
    assert len(documents) == 2
    assert embeddings.embed_query(TEXTS[1]) == pytest.approx(documents[1], abs=1e-4)


async def test_async_forms_return_the_same_vectors(async_options: dict[str, Any]) -> None:
    embeddings = OpenAIEmbeddings(**async_options, check_embedding_ctx_length=False)
    documents = await embeddings.aembed_documents(TEXTS)
    assert await embeddings.aembed_query(TEXTS[0]) == pytest.approx(documents[0], abs=1e-4)


def test_fewer_dimensions_are_returned_on_request(options: dict[str, Any]) -> None:
    short = OpenAIEmbeddings(**options, check_embedding_ctx_length=False, dimensions=8)
    assert len(short.embed_query(TEXTS[0])) == 8
