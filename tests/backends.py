"""Backends of asynchronous code, and of llama.cpp."""

import pytest

from tests.repeat import thorough

TRIO_FIRST = ("trio", pytest.param("asyncio", marks=thorough))
"""Trio, and asyncio only with `-m thorough`: for tests whose code waits by other code, which is tested on both."""

GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")
"""Variables that list the GPUs of a process. Without any, llama.cpp computes on the CPU."""


@pytest.fixture(name="anyio_backend", params=("trio", "asyncio"))
def on_each_backend(request: pytest.FixtureRequest) -> str:
    """Run on both, for code that others build on: import this in a conftest or a test module."""
    name: str = request.param
    return name
