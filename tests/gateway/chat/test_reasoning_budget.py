"""The budget of reasoning in a prompt: the tags of the model's family, and whether the prompt opens them."""

import pytest

from gateway.chat.conversation import ChatModel, ChatPrompt, Conversation
from gateway.chat.reasoning import ReasoningDefaults
from gateway.chat.template_key import TemplateDefaults, TemplateKey


def prompt_of(template: str, budget: int | None, *, control: bool = False) -> ChatPrompt:
    messages = ({"role": "user", "content": "Hi"},)
    conversation = Conversation(messages=messages, reasoning_budget=budget, reasoning_control=control)
    return ChatModel(TemplateKey(template)).prompt(conversation)


@pytest.mark.parametrize("opened", [False, True])
def test_the_budget_has_the_tags_of_the_template(opened: bool) -> None:
    template = "{{ messages[-1].content }}" + ("{{ '<think>' }}" if opened else "{# <think> </think> #}")
    reasoning = prompt_of(f"{template}{{# </think> #}}", 7).reasoning
    assert reasoning is not None
    assert (reasoning.budget, reasoning.opening, reasoning.closing) == (7, "<think>", "</think>")
    assert reasoning.opened is opened


def test_harmony_ends_its_first_message() -> None:
    reasoning = prompt_of("{{ messages[-1].content }}{# <|channel|> #}", 7).reasoning
    assert reasoning is not None
    assert (reasoning.opening, reasoning.closing) == ("<|channel|>analysis<|message|>", "<|end|>")


@pytest.mark.parametrize("budget", [None, 7])
def test_reasoning_that_may_be_ended_needs_no_budget(budget: int | None) -> None:
    reasoning = prompt_of("{{ messages[-1].content }}</think>", budget, control=True).reasoning
    assert reasoning is not None
    assert (reasoning.budget, reasoning.controlled) == (budget, True)
    assert prompt_of("{{ messages[-1].content }}", budget, control=True).reasoning is None


def test_a_message_between_reasonings_is_that_of_the_family() -> None:
    reasoning = prompt_of("{{ messages[-1].content }}{# <|channel|> #}", None).reasoning
    assert reasoning is not None
    assert reasoning.between == "<|start|>assistant"


@pytest.mark.parametrize(("given", "limit"), [(None, 9), (-1, None), (0, 0), (7, 7)])
@pytest.mark.parametrize(("words", "message"), [(None, "Enough."), ("", ""), ("So:", "So:")])
def test_a_request_may_override_the_limit_of_the_operator(
    given: int | None, limit: int | None, words: str | None, message: str
) -> None:
    defaults = ReasoningDefaults(9, "Enough.")
    messages = ({"role": "user", "content": "Hi"},)
    conversation = Conversation(messages=messages, reasoning_budget=given, reasoning_message=words)
    reasoning = (
        ChatModel(TemplateKey("{{ messages[-1].content }}</think>", defaults=TemplateDefaults(reasoning=defaults)))
        .prompt(conversation)
        .reasoning
    )
    assert reasoning is not None
    assert (reasoning.budget, reasoning.message) == (limit, message)


def test_without_a_budget_there_is_no_limit() -> None:
    reasoning = prompt_of("{{ messages[-1].content }}</think>", None).reasoning
    assert reasoning is not None
    assert reasoning.budget is None


def test_a_model_that_does_not_reason_has_no_limit() -> None:
    assert prompt_of("{{ messages[-1].content }}", 7).reasoning is None
