"""Reasoning that a client ends while it reads it: the engine closes it, and the answer follows."""

import orjson
import pytest

from tests.system.served import MANY, PASS, post, serving

pytestmark = pytest.mark.anyio

TEMPLATE = "{{ messages[-1].content }}{{ '<think>' }}{# </think> #}"
ASKED = [{"role": "user", "content": "Once"}]


async def test_the_reasoning_of_a_stream_is_ended() -> None:
    async with serving(seconds_per_pass=PASS, slots=1, grace=0.0, chat_template=TEMPLATE) as served:
        client = served.client()
        body = {"messages": ASKED, "max_tokens": MANY, "stream": True, "ignore_eos": True, "reasoning_control": True}
        await client.send(post("reader", "/v1/chat/completions", **body))
        head = await client.read_until(b'"reasoning_content":')
        answer_id = head.partition(b'"id":"')[2].partition(b'"')[0].decode()
        control = {"id": answer_id, "action": "reasoning_end"}
        answer = await served.answer(post("control", "/v1/chat/completions/control", **control))
        assert orjson.loads(answer.body) == {"success": True}
        rest = await client.read_until(b'"content":"')
        assert b"</think>" not in rest
        client.close()
        await served.until_idle()
