"""Every field of a chat request, and every way in which it can be invalid."""

from typing import Any

import pytest
from pydantic import ValidationError

from engine import GenerationRequest, Grammar, GrammarKind, RequestError, Sampling
from gateway.apis.openai.chat.call import prepare_chat
from gateway.apis.openai.chat.request import ChatBody
from gateway.chat.conversation import ChatPrompt, Conversation
from gateway.chat.formats import recognize
from gateway.chat.parsing import ParserKey
from gateway.chat.tools import Tool

ASKED: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
GRAMMAR = Grammar(GrammarKind.REGEX, "a+")


PLAIN = ParserKey(format=recognize(""), tools=(), thinking=False, one_call=False)
PROMPT = ChatPrompt("<user>Hi", GRAMMAR, True, PLAIN)


def body(**fields: Any) -> ChatBody:
    return ChatBody.model_validate({"messages": ASKED, **fields})


def read(**fields: Any) -> GenerationRequest:
    return PROMPT.generation(prepare_chat(body(**fields)).request)


def conversation(**fields: Any) -> Conversation:
    return body(**fields).conversation()


def refused(**fields: Any) -> tuple[str | None, str]:
    """Return the field at fault and the reason."""
    try:
        conversation(**fields)
    except RequestError as error:
        return error.param, error.message.partition(": ")[2]
    except ValidationError as error:
        fault = error.errors()[0]
        return str(fault["loc"][0]), fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
    raise AssertionError("it was accepted")


def test_an_empty_request_has_openais_defaults() -> None:
    asked = GenerationRequest(id="", prompts=("<user>Hi",), grammar=GRAMMAR, show_special=True)
    assert read() == asked
    assert asked.sampling == Sampling()
    assert asked.max_tokens is None
    assert conversation() == Conversation(messages=(ASKED[0],))


def test_every_field_reaches_the_engine() -> None:
    asked = read(
        n=3,
        stop=["x"],
        stop_token_ids=[7],
        seed=0,
        temperature=0,
        stream=True,
        cache_prompt=False,
        return_token_ids=True,
    )
    assert (asked.n, asked.stop, asked.stop_tokens, asked.stream) == (3, ("x",), (7,), True)
    assert (asked.sampling, asked.cache_prompt) == (Sampling(temperature=0, seed=0), False)
    assert asked.token_ids


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 0}, 0),
        ({"max_completion_tokens": 0}, 0),
        ({"max_tokens": 5, "max_completion_tokens": 5}, 5),
        ({"max_completion_tokens": None}, None),
        ({"max_tokens": -1}, None),
        ({"max_completion_tokens": -1}, None),
    ],
)
def test_max_tokens_and_max_completion_tokens_are_one_limit(fields: dict[str, Any], limit: int | None) -> None:
    assert read(**fields).max_tokens == limit


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"top_logprobs": 0}, None),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
def test_logprobs_and_top_logprobs_set_the_alternatives(fields: dict[str, Any], told: int | None) -> None:
    assert read(**fields).logprobs == told


def test_a_stream_reports_only_what_it_asks_for() -> None:
    asked = {(one.progress, one.token_ids) for one in (read(), read(stream=True), read(return_progress=True))}
    assert asked == {(False, False)}
    assert read(stream=True, return_progress=True).progress
    timed = read(stream=True, timings_per_token=True)
    assert (timed.progress, timed.token_ids) == (True, True)


def test_template_kwargs_come_from_their_own_fields() -> None:
    told = conversation(
        documents=[{"title": "T"}],
        reasoning_effort="low",
        verbosity="high",
        chat_template_kwargs={"enable_thinking": True, "verbosity": "mine"},
    )
    assert told.template_kwargs == {
        "documents": [{"title": "T"}],
        "reasoning_effort": "low",
        "verbosity": "mine",
        "enable_thinking": True,
    }


def test_no_effort_means_no_thinking() -> None:
    kwargs = {"reasoning_effort": "none", "enable_thinking": False}
    assert conversation(reasoning_effort="none").template_kwargs == kwargs
    thinking = conversation(reasoning_effort="none", chat_template_kwargs={"enable_thinking": True})
    assert thinking.template_kwargs["enable_thinking"] is True


def test_tools_and_grammars_belong_to_the_conversation() -> None:
    tools = [{"type": "function", "function": {"name": "add"}}]
    made = conversation(tools=tools, tool_choice="required", parallel_tool_calls=False, guided_regex="a+")
    assert (made.tools, made.tool_choice, made.parallel_tool_calls) == ((Tool("add"),), "required", False)
    assert made.grammar == GRAMMAR
    assert not conversation(functions=[{"name": "add"}]).parallel_tool_calls


def test_a_last_assistant_message_can_be_continued() -> None:
    said = [*ASKED, {"role": "assistant", "content": "Well"}]
    for more in ({}, {"add_generation_prompt": False}):
        assert conversation(messages=said, continue_final_message=True, **more).continue_final
    assert not conversation(continue_final_message=False).continue_final
    assert not conversation(messages=said, add_generation_prompt=False).open_answer
    assert conversation(messages=said, add_generation_prompt=True).open_answer


CALLED = [
    *ASKED,
    {
        "role": "assistant",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
]
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "both limits": ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens", "has another value"),
    "a limit below -1": ({"max_completion_tokens": -2}, "max_completion_tokens", "greater than or equal to -1"),
    "alternatives of nothing": ({"top_logprobs": 5}, "top_logprobs", "is allowed only where logprobs is true"),
    "many alternatives": ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "less than or equal to 20"),
    "logprobs as a number": ({"logprobs": 5}, "logprobs", "valid boolean"),
    "many choices": ({"n": 129}, "n", "less than or equal to 128"),
    "sound": ({"modalities": ["text", "audio"]}, "modalities", 'should be ["text"]'),
    "a voice": ({"audio": {"voice": "x", "format": "wav"}}, "audio", "is not supported"),
    "a search": ({"web_search_options": {}}, "web_search_options", "is not supported"),
    "moderation": ({"moderation": {"model": "x"}}, "moderation", "is not supported"),
    "a template": ({"chat_template": "x"}, "chat_template", "--chat-template"),
    "a variable of ours": ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "not have messages"),
    "usage of no stream": ({"stream_options": {}}, "stream_options", "where stream is true"),
    "another tier": ({"service_tier": "first"}, "service_tier", "should be 'auto'"),
    "another form of reasoning": (
        {"reasoning_format": "deepseek-legacy"},
        "reasoning_format",
        "should be 'auto', 'deepseek' or 'none'",
    ),
    "another effort": ({"reasoning_effort": "some"}, "reasoning_effort", "should be 'none'"),
    "another verbosity": ({"verbosity": "some"}, "verbosity", "should be 'low'"),
    "metadata of numbers": ({"metadata": {"a": 1}}, "metadata", "should have strings as its values"),
    "much metadata": ({"metadata": {str(i): "x" for i in range(17)}}, "metadata", "at most 16 items"),
    "long metadata": ({"metadata": {"a": "x" * 513}}, "metadata", "at most 512 characters"),
    "a long identifier": ({"safety_identifier": "x" * 65}, "safety_identifier", "at most 64 characters"),
    "another retention": ({"prompt_cache_retention": "1h"}, "prompt_cache_retention", "'in_memory'"),
    "a prediction of nothing": ({"prediction": {"type": "content"}}, "prediction", "Field required"),
    "no messages": ({"messages": None}, "messages", "Field required"),
    "no messages to go on": ({"messages": None, "continue_final_message": True}, "messages", "Field required"),
    "an open end twice": (
        {"messages": [*ASKED, {"role": "assistant", "content": "x"}], "continue_final_message": True}
        | {"add_generation_prompt": True},
        "continue_final_message",
        "cannot be combined with add_generation_prompt",
    ),
    "a user to go on": ({"continue_final_message": True}, "continue_final_message", "is an assistant's"),
    "a call to go on": (
        {"messages": CALLED, "continue_final_message": True},
        "continue_final_message",
        "without calls",
    ),
    "a deprecated call to go on": (
        {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}]}
        | {"continue_final_message": True},
        "continue_final_message",
        "without calls",
    ),
    "two grammars": ({"guided_regex": "a", "grammar": "start: /a/"}, "guided_regex", "cannot be combined with grammar"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_unsupported_field_is_refused_by_name(wrong: str) -> None:
    fields, field, reason = WRONG[wrong]
    found = refused(**fields)
    assert found[0] == field
    assert reason in found[1]


ACCEPTED: dict[str, Any] = {
    "store": True,
    "metadata": {"a": "b"},
    "service_tier": "flex",
    "user": "me",
    "safety_identifier": "me",
    "prompt_cache_key": "mine",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"ttl": "30m"},
    "modalities": ["text"],
    "parallel_tool_calls": False,
    "verbosity": "low",
}


def test_a_prediction_enables_speculation_unless_it_is_off() -> None:
    prediction = {"type": "content", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "you"}]}
    asked = read(prediction=prediction)
    assert (asked.prediction, asked.speculative) == ("Hello\nyou", True)
    assert read(prediction=prediction, speculative=False).speculative is False
    assert [read(speculative=wanted).speculative for wanted in (None, True, False)] == [None, True, False]


@pytest.mark.parametrize("field", ACCEPTED)
def test_fields_without_effect_are_accepted(field: str) -> None:
    assert read(**{field: ACCEPTED[field]}) == read()


@pytest.mark.parametrize("field", [name for name in ChatBody.model_fields if name != "messages"])
def test_null_means_not_given(field: str) -> None:
    name = ChatBody.model_fields[field].alias or field
    assert read(**{name: None}) == read()
    assert conversation(**{name: None}) == conversation()


def test_refusals_of_the_engine_have_the_clients_field_names() -> None:
    names = body(max_completion_tokens=5, guided_regex="a").engine_names
    assert names == {"prompt": "messages", "max_tokens": "max_completion_tokens", "grammar": "guided_regex"}
    assert body().engine_names == {"prompt": "messages", "max_tokens": "max_tokens", "grammar": "tools"}
    assert body(functions=[{"name": "f"}]).engine_names["grammar"] == "functions"


@pytest.mark.parametrize("name", ["reasoning_budget", "reasoning_budget_tokens", "thinking_budget_tokens"])
@pytest.mark.parametrize("budget", [-1, 0, 100])
def test_the_budget_of_reasoning_has_three_names(name: str, budget: int) -> None:
    asked = conversation(**{name: budget}, reasoning_budget_message="Enough.")
    assert (asked.reasoning_budget, asked.reasoning_message) == (budget, "Enough.")


def test_without_a_budget_of_reasoning_the_operator_decides() -> None:
    assert (conversation().reasoning_budget, conversation().reasoning_message) == (None, None)


def test_names_of_the_budget_may_not_contradict_each_other() -> None:
    assert conversation(reasoning_budget=5, thinking_budget_tokens=5).reasoning_budget == 5
    with pytest.raises(ValidationError, match="reasoning_budget"):
        body(reasoning_budget=5, thinking_budget_tokens=6)
    with pytest.raises(ValidationError, match="reasoning_budget"):
        body(reasoning_budget=-2)
