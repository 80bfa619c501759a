"""Two gateways behind a router: conversations go to the one that holds them, and move when it does not any more."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Any

import pytest

from gateway.routing.blocks import PromptScope, text_blocks
from gateway.routing.report import Report
from gateway.routing.router import PrefixRouter, Routed
from tests.backends import ON_TRIO
from tests.gateway.server.sockets import get
from tests.system.served import Served, post, serving

SECRET = "a secret of the cluster"  # noqa: S105
TEMPLATE = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}<assistant>"
SLOTS = 4
FEW = 100
"""Tokens. A turn has fewer, and a conversation with its first turn has more."""

pytestmark = [pytest.mark.anyio, ON_TRIO]  # what differs between the backends is tested with one gateway


class Ingress:
    """Renders conversations, routes them, and asks the gateways for reports."""

    def __init__(self, gateways: dict[str, Served]) -> None:
        self.gateways = gateways
        self.router = PrefixRouter[str](Random(1), linger=0)
        self.router.update_replicas(dict.fromkeys(gateways, SLOTS))
        self._ids = count(1)
        self._time = count()

    async def send(self, name: str, path: str, **body: Any) -> dict[str, Any]:
        decoded: dict[str, Any] = await self.gateways[name].content(post(f"r{next(self._ids)}", path, **body))
        return decoded

    async def chat(self, messages: list[dict[str, str]]) -> tuple[Routed[str], int]:
        """Route a conversation, and append its answer. Return the choice and the number of computed tokens."""
        rendered = await self.send("one", "/apply-template", messages=messages)
        scope = PromptScope(self.gateways["one"].gateway.models.all[0].name)
        routed = self.router.route(text_blocks(rendered["prompt"], scope, SECRET.encode()), next(self._time))
        body = {"messages": messages, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
        answer = await self.send(routed.replica, "/v1/chat/completions", **body)
        self.router.end(routed, next(self._time))
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        usage = answer["usage"]
        return routed, usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]

    async def learn(self) -> None:
        """Take over a report of each gateway."""
        for name, served in self.gateways.items():
            _, since = self.router.known(name)
            report = await served.content(get(f"/prefixes?since={since}"))
            assert self.router.receive(name, Report.from_json(report))


@asynccontextmanager
async def ingress() -> AsyncIterator[Ingress]:
    """Serve two gateways with a small model, and without prefixes in host memory."""
    fields: dict[str, Any] = {
        "slots": SLOTS,
        "context": 2048,
        "prefix_store": 0,
        "prefix_secret": SECRET,
        "chat_template": TEMPLATE,
    }
    async with serving(**fields) as one, serving(**fields) as other:
        yield Ingress({"one": one, "other": other})


def conversation(number: int) -> list[dict[str, str]]:
    return [{"role": "system", "content": f"{number} is the number of this conversation. " * 20}]


async def test_a_conversation_goes_to_the_gateway_that_holds_it() -> None:
    async with ingress() as cluster:
        conversations = [conversation(number) for number in range(4)]
        places: list[set[str]] = [set() for _ in conversations]
        for turn in range(3):
            for messages, place in zip(conversations, places, strict=True):
                messages.append({"role": "user", "content": f"and {turn}?"})
                routed, computed = await cluster.chat(messages)
                place.add(routed.replica)
                assert (computed < FEW) == bool(turn)
                await cluster.learn()
        assert [len(place) for place in places] == [1, 1, 1, 1]


async def test_what_a_gateway_gave_up_attracts_no_requests() -> None:
    async with ingress() as cluster:
        messages = conversation(0)
        messages.append({"role": "user", "content": "Hello!"})
        routed, _ = await cluster.chat(messages)
        await cluster.learn()
        assert list(cluster.router.holders(routed.blocks[-1])) == [routed.replica]
        for other in range(SLOTS):
            await cluster.send(routed.replica, "/v1/completions", prompt=f"{other} other words " * 20, max_tokens=1)
        await cluster.learn()
        assert list(cluster.router.holders(routed.blocks[0])) == []


async def test_a_gateway_that_leaves_loses_its_conversations_to_the_other() -> None:
    async with ingress() as cluster:
        messages = conversation(0)
        messages.append({"role": "user", "content": "Hello!"})
        first, _ = await cluster.chat(messages)
        await cluster.learn()
        cluster.router.remove(first.replica)
        messages.append({"role": "user", "content": "Are you there?"})
        second, computed = await cluster.chat(messages)
        assert second.replica != first.replica
        assert second.held == 0
        assert computed > FEW
