"""Conversations by OpenAI's own client: created, listed, continued by responses, and deleted."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.conversations import ConversationItem
from openai.types.conversations.message import Message

pytestmark = pytest.mark.anyio

SUM: dict[str, Any] = {"model": "tiny", "input": "What is 17 plus 25?", "temperature": 0}
TOLD = "17+25=42"


def words(item: ConversationItem) -> str:
    assert isinstance(item, Message)
    (part,) = item.content
    assert part.type in {"input_text", "output_text"}
    text: str = part.text
    return text


def test_a_conversation_is_continued_by_responses(client: OpenAI) -> None:
    conversation = client.conversations.create(
        metadata={"topic": "sums"}, items=[{"type": "message", "role": "user", "content": "Hello!"}]
    )
    first = client.responses.create(model="tiny", temperature=0, conversation=conversation.id)
    with client.responses.stream(**SUM, conversation={"id": conversation.id}) as stream:
        second = stream.get_final_response()
    assert second.output_text == TOLD
    assert second.conversation is not None
    assert second.conversation.id == conversation.id
    said = [words(item) for item in client.conversations.items.list(conversation.id, order="asc", limit=1)]
    assert said == ["Hello!", first.output_text, "What is 17 plus 25?", TOLD]
    last = client.conversations.items.list(conversation.id).data[0]
    assert isinstance(last, Message)
    assert [last.id] == [item.id for item in second.output if item.type == "message"]
    assert client.conversations.items.retrieve(last.id, conversation_id=conversation.id) == last
    assert client.conversations.items.delete(last.id, conversation_id=conversation.id) == conversation
    assert len(client.conversations.items.list(conversation.id).data) == 3
    updated = client.conversations.update(conversation.id, metadata={"topic": "other"})
    assert client.conversations.retrieve(conversation.id) == updated
    assert updated.metadata == {"topic": "other"}
    deleted = client.conversations.delete(conversation.id)
    assert (deleted.id, deleted.deleted) == (conversation.id, True)
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(conversation.id)


async def test_the_async_client_adds_items(async_client: AsyncOpenAI) -> None:
    conversation = await async_client.conversations.create()
    added = await async_client.conversations.items.create(
        conversation.id, items=[{"role": "user", "content": "Hello!"}], include=["message.output_text.logprobs"]
    )
    response = await async_client.responses.create(**SUM, conversation=conversation.id)
    assert response.output_text == TOLD
    listed = [item async for item in async_client.conversations.items.list(conversation.id, order="asc", limit=2)]
    assert [words(item) for item in listed] == ["Hello!", "What is 17 plus 25?", TOLD]
    assert listed[0] == added.data[0]
    with pytest.raises(openai.BadRequestError) as caught:
        await async_client.conversations.items.create(conversation.id, items=[{"role": "user", "content": "x"}] * 21)
    assert caught.value.param == "items"
    await async_client.conversations.delete(conversation.id)
