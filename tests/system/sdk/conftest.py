"""OpenAI's own client, for the model that the program carries."""

import pytest

from tests.program import Embedded


@pytest.fixture(scope="session")
def url(embedded: Embedded) -> str:
    return embedded.url
