"""OpenAI's own client, connected to the embedded model of the program."""

import pytest

from tests.program import Embedded


@pytest.fixture(scope="session")
def url(embedded: Embedded) -> str:
    return embedded.url
