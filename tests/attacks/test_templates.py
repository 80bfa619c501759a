"""A chat template comes with a model file and may be hostile. Other clients and the next chat are served."""

import anyio
import pytest

from gateway.preparation import jobs
from tests.attacks.watched import attacked
from tests.failures.processes import needs_proc
from tests.repeat import thorough
from tests.system.served import GUARD, post

pytestmark = [pytest.mark.anyio, thorough, needs_proc]

CHAT = "/v1/chat/completions"
HOSTILE = {
    "a huge power": "{% set n = 10 %}{{ n ** (n ** 9) }}",
    "a huge text": '{% set n = 3 * 10 ** 9 %}{{ ("x" * n) | length }}',
    "a huge list": "{% set n = 10 ** 10 %}{{ ([1] * n) | length }}",
    "endless loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "endless output": "{% for a in range(99999) %}{% for b in range(999) %}0123456789{% endfor %}{% endfor %}",
    "a costly filter": "{{ (range(99999) | list * 99) | sort | unique | list | length }}",
    "endless recursion": "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "a wide format": '{% set n = 10 ** 9 %}{{ "x".center(n) | length }}',
}


@pytest.fixture(autouse=True)
def _less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a template have less time than usual, because the attacks take all of it."""
    monkeypatch.setattr(jobs, "_SECONDS", 2)


def chat(content: str) -> bytes:
    return post("chat", CHAT, messages=[{"role": "user", "content": content}], max_tokens=1)


BY_NAME = "".join(
    f"{{% if messages[0].content == '{name}' %}}{attack}{{% endif %}}" for name, attack in HOSTILE.items()
)
"""A template that is hostile to messages with the name of an attack."""


async def test_a_hostile_template_is_ended(anyio_backend: str) -> None:
    answers: dict[str, tuple[int, bytes]] = {}
    async with attacked(anyio_backend, chat_template=BY_NAME + "{{ messages[0].content }}") as target:

        async def attack(name: str) -> None:
            answer = await target.served.answer(chat(name))
            answers[name] = answer.status, answer.body

        with anyio.fail_after(GUARD):
            async with anyio.create_task_group() as tasks:
                for name in HOSTILE:
                    tasks.start_soon(attack, name)
            served = await target.served.answer(chat("peace"))
    assert served.status == 200, served
    assert all(400 <= status < 600 and b'"error"' in body for status, body in answers.values()), answers


@pytest.mark.parametrize(
    "template",
    [
        pytest.param("{{ 10 ** (10 ** 9) }}", id="a constant that never ends"),
        pytest.param("{% if a %}" * 3_000 + "{% endif %}" * 3_000, id="deep nesting"),
        pytest.param("{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}", id="deep parentheses"),
        pytest.param("{% if %}", id="a syntax error"),
    ],
)
async def test_a_template_that_cannot_be_compiled_refuses_chats_in_one_line(
    anyio_backend: str, caplog: pytest.LogCaptureFixture, template: str
) -> None:
    async with attacked(anyio_backend, chat_template=template) as target:
        with anyio.fail_after(GUARD):
            refused = await target.served.answer(chat("attack"))
        assert 400 <= refused.status < 600, refused
        assert b'"error"' in refused.body
    assert all("\n" not in record.getMessage() and not record.exc_info for record in caplog.records)
