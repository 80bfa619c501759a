"""Two gateways on one database, as clients see them: stored responses and conversations are those of both."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import openai
import pytest
from openai import OpenAI

from gateway.apis.openai.shared_store.presence import LEASE
from tests.postgres import new_database
from tests.program import Process, serving_program
from tests.system.test_responses import ASKED, ON_AND_ON, TEMPLATE

pytestmark = [pytest.mark.long, pytest.mark.thorough]

Gateway = tuple[Process, OpenAI]
GUARD = 4 * LEASE
"""Seconds after which a test gives up waiting."""


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    with new_database(postgres) as place:
        yield place


@pytest.fixture
def gateways(url: str) -> Iterator[tuple[Gateway, Gateway]]:
    flags = ("--responses-store", url, "--context", "16384", "--alias", "tiny", "--chat-template", str(TEMPLATE))
    with (
        serving_program(*flags) as (one, first),
        serving_program(*flags) as (other, second),
        client_of(first) as to_one,
        client_of(second) as to_other,
    ):
        yield (one, to_one), (other, to_other)


def client_of(port: int) -> OpenAI:
    return OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=60)


def items_of(client: OpenAI, conversation: str) -> list[str | None]:
    return [item.id for item in client.conversations.items.list(conversation, order="asc", limit=100)]


def test_two_gateways_are_one_and_lose_nothing_when_one_is_killed(gateways: tuple[Gateway, Gateway]) -> None:
    (process, one), (_, other) = gateways
    either_gateway_has_the_responses_of_both(one, other)
    a_killed_gateway_loses_and_doubles_nothing(process, one, other)


def either_gateway_has_the_responses_of_both(one: OpenAI, other: OpenAI) -> None:
    first = one.responses.create(**ASKED)
    second = other.responses.create(**ASKED, previous_response_id=first.id)
    assert one.responses.retrieve(second.id) == second
    assert len(one.responses.input_items.list(second.id).data) == 1
    other.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        one.responses.retrieve(first.id)
    conversation = one.conversations.create().id
    for client in (one, other, one):
        client.responses.create(**ASKED, conversation=conversation)
    assert len(set(items_of(other, conversation))) == len(items_of(one, conversation)) == 6
    endless = one.responses.create(**ON_AND_ON, background=True)
    assert other.responses.cancel(endless.id).status == "cancelled"


def a_killed_gateway_loses_and_doubles_nothing(process: Process, one: OpenAI, other: OpenAI) -> None:
    conversation, held = one.conversations.create().id, one.conversations.create().id
    running = one.responses.create(**ON_AND_ON, background=True, conversation=held)
    answered: list[str] = []
    some = threading.Event()

    def converse() -> None:
        with suppress(openai.APIConnectionError):
            while True:
                answered.append(one.responses.create(**ASKED, conversation=conversation).id)
                if len(answered) > 4:
                    some.set()

    client = threading.Thread(target=converse)
    client.start()
    assert some.wait(GUARD)
    process.kill()
    with pytest.raises(openai.BadRequestError, match="Another response"):  # until its lease ends
        other.responses.create(**ASKED, conversation=held)
    assert other.responses.retrieve(running.id).status == "in_progress"
    client.join()

    kept = items_of(other, conversation)
    assert len(kept) == len(set(kept))
    assert len(kept) in {2 * len(answered), 2 * len(answered) + 2}, "the last answer may have been cut on its way"
    assert all(other.responses.retrieve(name).status in {"completed", "incomplete"} for name in answered)

    until = time.monotonic() + GUARD
    while other.responses.retrieve(running.id).status != "failed":
        assert time.monotonic() < until
        time.sleep(0.2)
    assert other.responses.create(**ASKED, conversation=held).status in {"completed", "incomplete"}
    assert other.responses.create(**ASKED, conversation=conversation).status in {"completed", "incomplete"}
    assert len(items_of(other, conversation)) == len(kept) + 2
