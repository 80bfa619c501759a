"""Anthropic's own client against the program on its embedded model: right answers, in its types."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_tool
from anthropic.types import Message, MessageTokensCount, ModelInfo, RawMessageStreamEvent, ToolUseBlock
from pydantic import BaseModel, TypeAdapter

from tests.backends import WITH_SDK
from tests.program import GUARD, Embedded

pytestmark = WITH_SDK

TOLD = "17+25=42"
ASKED: Any = {"role": "user", "content": "What is 17 plus 25?"}
SUM: dict[str, Any] = {"model": "tiny", "max_tokens": 40, "messages": [ASKED], "extra_body": {"temperature": 0}}
ADD: Any = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


@pytest.fixture(scope="module")
def client(embedded: Embedded) -> Iterator[Anthropic]:
    with Anthropic(base_url=embedded.root, api_key="none", max_retries=0, timeout=GUARD) as client:
        yield client


@pytest.fixture
async def async_client(embedded: Embedded) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=embedded.root, api_key="none", max_retries=0, timeout=GUARD) as client:
        yield client


def text_of(message: Message) -> str:
    """Return the text of a message that is valid by the SDK's types, which it does not check itself."""
    Message.model_validate(message.to_dict(), strict=True)
    (block,) = message.content
    assert block.type == "text"
    return block.text


def test_a_whole_message_has_its_text_and_usage(client: Anthropic) -> None:
    message = client.messages.create(**SUM, system="Be brief.", metadata={"user_id": "u"}, service_tier="auto")
    assert text_of(message) == TOLD
    assert (message.role, message.model, message.stop_reason) == ("assistant", "tiny", "end_turn")
    assert message._request_id is not None
    assert message.usage.output_tokens == 9


def test_models_are_listed_in_the_sdks_types(client: Anthropic) -> None:
    (listed,), got = client.models.list(), client.models.retrieve("tiny")
    assert listed == got
    ModelInfo.model_validate(got.model_dump(mode="python"), strict=True)
    assert (got.id, got.type, got.display_name) == ("tiny", "model", "tiny")


def test_a_stream_has_typed_events_in_order(client: Anthropic) -> None:
    events = list(client.messages.create(**SUM, stream=True))
    for event in events:
        _EVENT.validate_python(event.to_dict(), strict=True)
    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


async def test_the_stream_helpers_join_to_the_whole_message(client: Anthropic, async_client: AsyncAnthropic) -> None:
    whole = client.messages.create(**SUM)
    with client.messages.stream(**SUM) as stream:
        assert "".join(stream.text_stream) == TOLD
        final = stream.get_final_message()
    async with async_client.messages.stream(**SUM) as async_stream:
        assert "".join([text async for text in async_stream.text_stream]) == TOLD
        other = await async_stream.get_final_message()
    for message in (final, other):
        assert (message.stop_reason, message.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
        total = message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)
        assert total == client.messages.count_tokens(model="tiny", messages=[ASKED]).input_tokens


async def test_the_async_client_gets_the_same_answer(async_client: AsyncAnthropic) -> None:
    assert text_of(await async_client.messages.create(**SUM)) == TOLD


def test_a_call_its_result_and_the_answer(client: Anthropic) -> None:
    asked = {**SUM, "tools": [ADD]}
    first = client.messages.create(**asked, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    (call,) = first.content
    assert isinstance(call, ToolUseBlock)
    assert (first.stop_reason, call.name, call.input) == ("tool_use", "add", {"a": 17, "b": 25})
    result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "42"}]}
    messages = [ASKED, first.to_param(), {"role": "user", "content": [result]}]
    assert text_of(client.messages.create(**{**asked, "messages": messages})) == "The answer is 42."


def test_a_call_is_streamed(client: Anthropic) -> None:
    with client.messages.stream(**SUM, tools=[ADD]) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        (call,) = stream.get_final_message().content
    assert isinstance(call, ToolUseBlock)
    assert call.input == {"a": 17, "b": 25}
    assert len(pieces) > 1


def test_the_tool_runner_calls_the_function_and_gets_the_answer(client: Anthropic) -> None:
    @beta_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    runner = client.beta.messages.tool_runner(**SUM, tools=[add])
    last = runner.until_done()
    assert [block.text for block in last.content if block.type == "text"] == ["The answer is 42."]


def test_a_message_is_parsed_into_a_model(client: Anthropic) -> None:
    class Verdict(BaseModel):
        good: bool

    parsed = client.messages.parse(**SUM, output_format=Verdict)
    assert isinstance(parsed.parsed_output, Verdict)


def test_the_last_message_of_the_assistant_is_continued(client: Anthropic) -> None:
    prefilled = client.messages.create(**{**SUM, "messages": [ASKED, {"role": "assistant", "content": "17+25="}]})
    assert text_of(prefilled) == "42"


@pytest.mark.parametrize(
    ("fields", "text", "end"),
    [({"stop_sequences": ["="]}, "17+25", ("stop_sequence", "=")), ({"max_tokens": 2}, "17", ("max_tokens", None))],
)
def test_a_message_tells_why_it_ended(client: Anthropic, fields: Any, text: str, end: Any) -> None:
    message = client.messages.create(**{**SUM, **fields})
    assert text_of(message) == text
    assert (message.stop_reason, message.stop_sequence) == end


def test_a_count_has_the_sdks_type(client: Anthropic) -> None:
    count = client.messages.count_tokens(model="tiny", messages=[ASKED], system="Be brief.", tools=[ADD])
    assert MessageTokensCount.model_validate(count.to_dict()).input_tokens > 20


def test_the_conversations_of_a_coding_client_hit_the_cache_in_spite_of_their_billing_headers(
    client: Anthropic,
) -> None:
    def turn(fields: str, words: str) -> Message:
        header = f"x-anthropic-billing-header: {fields};"
        system: Any = [{"type": "text", "text": header}, {"type": "text", "text": words * 40}]
        message: Message = client.messages.create(**SUM, system=system, cache_control={"type": "ephemeral"})
        return message

    first, second = (
        turn(fields, "Be brief. ")
        for fields in ("cc_version=2.1.101.e51; cch=a5145", "cc_version=2.1.101.07c; cch=09bcd")
    )
    total = first.usage.input_tokens + (first.usage.cache_read_input_tokens or 0)
    assert (second.usage.input_tokens, second.usage.cache_read_input_tokens) == (1, total - 1)


def test_refusals_are_the_sdks_exceptions(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.messages.create(**{**SUM, "model": "claude"})
    assert unknown.value.type == "not_found_error"
    assert unknown.value.request_id is not None
    with pytest.raises(anthropic.BadRequestError, match="Could not process image: "):
        client.messages.create(**{**SUM, "messages": [{"role": "user", "content": [{"type": "image"}]}]})
    with pytest.raises(anthropic.BadRequestError, match="no_such_field: Extra inputs are not permitted"):
        client.messages.create(**{**SUM, "extra_body": {"no_such_field": 1}})
    beta = {**SUM, "extra_body": {"temperature": 0, "no_such_field": 1}}
    assert text_of(client.messages.create(**beta, extra_headers={"anthropic-beta": "some-2026-11-01"})) == TOLD
