"""Generated requests."""

from dataclasses import replace
from itertools import islice
from typing import Any

from gateway.bench.requests import Workload

WORKLOAD = Workload("completions", 16, 0, 50, stream=True, ignore_eos=False, seed=1)


def bodies(count: int, **changes: Any) -> list[dict[str, Any]]:
    return list(islice(replace(WORKLOAD, **changes).bodies("tiny"), count))


def test_a_completion_request_has_its_fields() -> None:
    (body,) = bodies(1)
    assert len(body.pop("prompt").split()) == 16
    assert body == {
        "model": "tiny",
        "max_tokens": 50,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_chat_request_may_be_whole() -> None:
    (body,) = bodies(1, endpoint="chat", stream=False, ignore_eos=True, max_tokens=7)
    ((message,), stream) = (body["messages"], body["stream"])
    assert (message["role"], len(message["content"].split()), stream) == ("user", 16, False)
    assert "stream_options" not in body
    assert (body["ignore_eos"], body["max_tokens"]) == (True, 7)


def test_prompts_differ_and_repeat_with_the_seed() -> None:
    prompts = [body["prompt"] for body in bodies(100)]
    assert len(set(prompts)) == 100
    assert prompts == [body["prompt"] for body in bodies(100)]
    assert not set(prompts) & {body["prompt"] for body in bodies(100, seed=2)}


def test_a_shared_prefix_comes_before_the_rest() -> None:
    prompts = [body["prompt"].split() for body in bodies(10, shared_prefix=512)]
    assert {len(prompt) for prompt in prompts} == {528}
    assert len({tuple(prompt[:512]) for prompt in prompts}) == 1
    assert len({tuple(prompt[512:]) for prompt in prompts}) == 10
