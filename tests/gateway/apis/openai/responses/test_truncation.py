"""`truncation: "auto"`: the first items go until the prompt fits, and never instructions or half of a call."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import anyio
import orjson
import pytest
from typing_extensions import override

from engine import TextPrompt, TokenRun
from gateway.apis.openai.responses.encoded import ItemOutline
from gateway.apis.openai.responses.truncation import find_cuts
from tests.gateway.apis.openai.responses.asking import PATH, TEMPLATE, answering, chatting
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, post
from tests.gateway.fake_engine import FakeEngine

CONTEXT = 300


def cuts_of(conversation: str) -> tuple[list[int], list[int]]:
    """Return the cuts of a conversation between its turns, and in the last one.

    s u a r are messages and reasoning, a digit is a call, `+digit` its output.
    """
    roles = {"s": "system", "u": "user", "a": "assistant"}
    items = [
        ItemOutline("reasoning")
        if word == "r"
        else ItemOutline("message", roles[word])
        if word in roles
        else ItemOutline("function_call_output" if word[0] == "+" else "function_call", call_id=word[-1])
        for word in conversation.split()
    ]
    return find_cuts(items)


@pytest.mark.parametrize(
    ("conversation", "turns", "items"),
    [
        ("u", [], []),
        ("u a", [], [1]),
        ("u a u", [2], []),
        ("u a u a u", [2, 4], []),
        ("s u a s u u", [1, 4], [5]),
        ("u r a u", [3], []),
        ("u r 1 +1 a", [], [1, 4]),
        ("u 1 2 +1 +2 3 +3", [], [1, 5]),
        ("u 1 u +1 u", [4], []),
        ("u 1 +1 u 2 +2", [3], [4]),
    ],
)
def test_a_conversation_may_begin_where_nothing_is_parted(
    conversation: str, turns: Sequence[int], items: Sequence[int]
) -> None:
    assert cuts_of(conversation) == (turns, items)


def small(answer: str = "x") -> FakeEngine:
    engine = chatting(answering(answer))
    assert engine.model is not None
    engine.model = replace(engine.model, context=CONTEXT)
    return engine


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


TURNS = [message(role, f"{turn}" * 20) for turn in range(6) for role in ("user", "assistant")]


async def answered(engine: FakeEngine, **fields: Any) -> tuple[str, dict[str, Any]]:
    """Return the prompt of a request, and its answer."""
    reply = await post(app_of(engine), PATH, {"truncation": "auto", **fields})
    assert reply.status == 200, reply.content
    answer: dict[str, Any] = reply.json
    return engine.prompt, answer


@pytest.mark.anyio
async def test_the_first_turns_are_dropped_until_the_prompt_fits() -> None:
    asked = [message("developer", "Rules."), *TURNS, message("user", "Now?")]
    prompt, answer = await answered(small(), input=asked, instructions="Be brief.", max_output_tokens=20)
    assert answer["truncation"] == "auto"
    assert "Be brief." in prompt
    assert "Rules." in prompt
    assert "Now?" in prompt
    assert [turn for turn in range(6) if f"{turn}" * 20 in prompt] == [5]
    longer, _ = await answered(small(), input=asked, instructions="Be brief.", max_output_tokens=100)
    assert not [turn for turn in range(6) if f"{turn}" * 20 in longer]


@pytest.mark.anyio
async def test_an_input_that_fits_stays_whole() -> None:
    engine = small()
    prompt, _ = await answered(engine, input=TURNS[:2])
    assert prompt.count("0" * 20) == 2


class FourCharacters(FakeEngine):
    """An engine whose tokens have four characters."""

    @override
    async def tokenize(self, texts: Sequence[TextPrompt], *, take: Callable[[TokenRun], None], **options: Any) -> None:
        characters = count()

        def take_fourth(run: TokenRun) -> None:
            if next(characters) % 4 == 0:
                take(run)

        await super().tokenize(texts, take=take_fourth, **options)


@pytest.mark.anyio
async def test_an_input_with_more_characters_than_the_context_has_tokens_may_fit() -> None:
    engine = FourCharacters(answering("x"), TEMPLATE)
    assert engine.model is not None
    engine.model = replace(engine.model, context=CONTEXT)
    prompt, _ = await answered(engine, input=TURNS, max_output_tokens=20)
    assert len(prompt) > 2 * CONTEXT
    assert prompt.count("0" * 20) == 2


def strict() -> FakeEngine:
    """Return an engine whose template refuses what does not begin with the user, as Mistral's and Gemma's do."""
    engine = small()
    assert engine.model is not None
    check = "{% if messages[0].role != 'user' %}{{ raise_exception('It begins with the user.') }}{% endif %}"
    engine.model = replace(engine.model, chat_template=f"{check}{engine.model.chat_template}")
    return engine


@pytest.mark.anyio
async def test_the_first_turns_are_dropped_although_the_template_refuses_to_begin_in_the_last_one() -> None:
    answers = [message("assistant", letter * 5) for letter in "abc"]
    prompt, _ = await answered(strict(), input=[*TURNS[:4], message("user", "Now?"), *answers], max_output_tokens=20)
    assert [turn for turn in range(2) if f"{turn}" * 20 in prompt] == [1]
    assert "Now?" in prompt


@pytest.mark.anyio
async def test_a_conversation_whose_cuts_the_template_refuses_goes_to_the_engine_as_it_is() -> None:
    asked = [message("user", "x" * 200), *(message("assistant", letter * 50) for letter in "abc")]
    prompt, _ = await answered(strict(), input=asked, max_output_tokens=20)
    assert "x" * 200 in prompt


@pytest.mark.anyio
async def test_a_call_and_its_output_are_dropped_together() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": "' + "x" * 150 + '"}'}
    output = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    late = [message("assistant", "It is 3."), message("user", "Sure?")]
    prompt, _ = await answered(small(), input=[message("user", "Add."), call, output, *late], max_output_tokens=30)
    assert "tool_call" not in prompt
    assert "tool\n3" not in prompt
    assert "Sure?" in prompt


@pytest.mark.anyio
async def test_a_stored_conversation_is_truncated_and_kept() -> None:
    engine = small("y" * 30)
    app = app_of(engine)
    before: str | None = None
    for turn in range(5):
        fields = {"input": f"{turn}" * 30, "previous_response_id": before, "truncation": "auto"}
        reply = await post(app, PATH, fields)
        assert reply.status == 200, reply.content
        before = reply.json["id"]
    prompt = engine.prompt
    assert "4" * 30 in prompt
    assert "0" * 30 not in prompt


@pytest.mark.anyio
async def test_the_count_of_tokens_is_that_of_the_truncated_prompt() -> None:
    fields = {"input": [*TURNS, message("user", "Now?")], "truncation": "auto"}
    counted = (await post(app_of(small()), f"{PATH}/input_tokens", fields)).json["input_tokens"]
    assert 0 < counted <= CONTEXT


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_while_tokens_are_counted_ends_the_request_and_its_turn(stream: bool) -> None:
    engine = small()
    app = app_of(engine)
    conversation = (await post(app, "/v1/conversations", {"items": TURNS})).json["id"]
    fields = {"input": "Now?", "conversation": conversation, "truncation": "auto", "stream": stream}
    engine.answers = anyio.Event()
    async with AsgiCall(app, PATH, orjson.dumps(fields)).running() as call:
        await engine.asked.wait()
        call.hang_up()
    assert (engine.left, engine.generations) == (1, [])
    assert call.start is None
    engine.answers.set()
    assert (await post(app, PATH, {**fields, "stream": False})).status == 200


@pytest.mark.anyio
async def test_the_work_grows_with_the_logarithm_of_the_items() -> None:
    engine = small()
    await answered(engine, input=[message(role, "a") for _ in range(512) for role in ("user", "assistant")])
    assert len(engine.tokenized) <= 11


@pytest.mark.anyio
@pytest.mark.parametrize("truncation", ["auto", "disabled"])
async def test_what_cannot_be_truncated_goes_to_the_engine_as_it_is(truncation: str) -> None:
    prompt, _ = await answered(small(), input=[message("user", "x" * 999)], truncation=truncation)
    assert "x" * 999 in prompt
