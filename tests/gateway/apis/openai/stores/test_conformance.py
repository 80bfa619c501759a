"""All stores of responses and conversations do the same: those in memory, and in PostgreSQL where it is installed."""

from collections.abc import Awaitable, Callable

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.apis.openai.responses.store.pages import Page
from tests.backends import ON_TRIO
from tests.gateway.apis.openai.stores import conversation_cases, response_cases
from tests.gateway.apis.openai.stores.bench import Bench, MemoryBench, SharedBench
from tests.gateway.apis.openai.stores.conversation_cases import Step, every_page_is_that_of_a_list
from tests.repeat import thorough

pytestmark = pytest.mark.anyio
CASES = (*response_cases.CASES, *conversation_cases.CASES)

NAMES = st.sampled_from("abcdefgh")
PAGES = st.builds(
    Page.model_construct,
    limit=st.integers(1, 5),
    order=st.sampled_from(["asc", "desc"]),
    after=st.none() | NAMES,
    include=st.just([]),
)
STEPS: st.SearchStrategy[Step] = st.lists(NAMES, max_size=3) | NAMES | PAGES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_stores_in_memory(case: Callable[[Bench], Awaitable[None]]) -> None:
    await case(MemoryBench())


@thorough
@ON_TRIO
async def test_the_stores_in_postgresql(url: str) -> None:
    for case in CASES:
        bench = SharedBench(url)
        await case(bench)
        await bench.close()


@given(st.lists(STEPS, max_size=12))
def test_every_page_is_that_of_a_list(steps: list[Step]) -> None:
    anyio.run(every_page_is_that_of_a_list, MemoryBench(), steps)
