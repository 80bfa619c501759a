"""LangChain's standard tests of chat models and embeddings, for its packages for OpenAI, Ollama and Anthropic.

Each suite says what its API and the model inside can do. LangChain skips the tests of the rest.
"""

import os
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_tests.integration_tests import ChatModelIntegrationTests, EmbeddingsIntegrationTests

MODEL = "tiny"


def _root() -> str:
    return os.environ["LANGCHAIN_SUITES_SERVER"]


class TestOpenAI(ChatModelIntegrationTests):
    """`ChatOpenAI` on chat completions."""

    chat_model_class = ChatOpenAI
    supports_json_mode = True
    has_tool_choice = True

    @property
    def chat_model_params(self) -> dict[str, Any]:
        own = {"base_url": f"{_root()}/v1", "api_key": "none", "stream_usage": True}
        return {"model": MODEL, "temperature": 0, "max_tokens": 200, **own}


class TestOpenAIResponses(TestOpenAI):
    """`ChatOpenAI` on responses."""

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**super().chat_model_params, "use_responses_api": True}


class TestOllama(ChatModelIntegrationTests):
    """`ChatOllama`."""

    chat_model_class = ChatOllama
    supports_json_mode = True
    has_tool_choice = False

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "base_url": _root(), "temperature": 0, "num_predict": 200}


class TestAnthropic(ChatModelIntegrationTests):
    """`ChatAnthropic`."""

    chat_model_class = ChatAnthropic
    supports_anthropic_inputs = False
    has_tool_choice = True

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "base_url": _root(), "api_key": "none", "temperature": 0, "max_tokens": 200}


class TestOpenAIEmbeddings(EmbeddingsIntegrationTests):
    """`OpenAIEmbeddings`."""

    embeddings_class = OpenAIEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        own = {"base_url": f"{_root()}/v1", "api_key": "none", "check_embedding_ctx_length": False}
        return {"model": MODEL, **own}


class TestOllamaEmbeddings(EmbeddingsIntegrationTests):
    """`OllamaEmbeddings`."""

    embeddings_class = OllamaEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": MODEL, "base_url": _root()}
