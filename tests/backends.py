"""Backends of asynchronous code, and of llama.cpp."""

import pytest

from tests.repeat import thorough

TRIO_FIRST = ("trio", pytest.param("asyncio", marks=thorough))
"""Trio, and asyncio only with `-m thorough`: for tests whose code waits by other code, which is tested on both."""

ON_TRIO = pytest.mark.parametrize("anyio_backend", ["trio"])
ON_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For tests of what runs in Ray, too, which runs asyncio."""
VIRTUAL_CLOCK = "virtual-clock"
ON_VIRTUAL_CLOCK = pytest.mark.parametrize("anyio_backend", [VIRTUAL_CLOCK], indirect=True)
"""Trio, on a clock that jumps to the next deadline as soon as every task waits."""

WITH_SDK = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning"),
]
"""Marks of tests with an SDK, which leaves its own generators unfinished at the end of a stream. Trio reports it."""

GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")
"""Variables that list the GPUs of a process. Without any, llama.cpp computes on the CPU."""


@pytest.fixture(name="anyio_backend", params=("trio", "asyncio"))
def on_each_backend(request: pytest.FixtureRequest) -> str:
    """Run on both, for code that others build on: import this in a conftest or a test module."""
    name: str = request.param
    return name
