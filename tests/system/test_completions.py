"""Completions over real sockets and a real model: a stream and a whole answer agree for every field."""

from itertools import accumulate
from typing import Any

import orjson
import pytest

from tests.gateway.joined import joined
from tests.system.answers import ALIKE, STREAMED, assert_alike
from tests.system.served import MANY, PASS, Served, ask, completion, serving

pytestmark = pytest.mark.anyio

ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "sampled": {"temperature": 1.5, "top_k": 40, "typical_p": 0.9, "min_p": 0.01, "seed": 3},
    "log-probabilities": {"logprobs": 3, "temperature": 1.0, "seed": 5},
    "several choices with all details": {
        "prompt": ["Once", "There was"],
        "n": 2,
        "temperature": 1.0,
        "seed": 7,
        "logprobs": 0,
        "echo": True,
        "return_token_ids": True,
    },
    "a stop string": {"stop": [" t", "e"], "logprobs": 1, "max_tokens": 30},
    "an expression": {"guided_regex": "[0-9]{3}(a|b)", "logprobs": 2, "ignore_eos": False},
    "a repeated text": {"repeat_penalty": 1.3, "dry_multiplier": 0.8, "frequency_penalty": 0.5, "logprobs": 0},
}


async def streamed(served: Served, **body: Any) -> dict[str, Any]:
    """Return the joined answer of one stream that must succeed."""
    answer = await served.answer(completion("ask", **body, **STREAMED))
    assert answer.status == 200, answer.body
    return joined(answer.body)


async def refused(served: Served, **body: Any) -> tuple[int, str]:
    """Return the status and the field at fault."""
    answer = await served.answer(completion("ask", **body))
    return answer.status, orjson.loads(answer.body)["error"]["param"]


async def test_a_stream_and_a_whole_answer_are_the_same() -> None:
    async with serving() as served:
        for asked in ASKED.values():
            body = {"max_tokens": 12, **ALIKE, **asked}
            whole, stream = await ask(served, **body), await streamed(served, **body)
            for answer in (whole, stream):
                del answer["id"], answer["created"]
            assert_alike(stream, whole)


@pytest.mark.parametrize("stop", [[], [" t", "e"]])
async def test_the_usage_until_now_counts_the_tokens_of_the_chunks(stop: list[str]) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with serving() as served:
        body = {"max_tokens": 30, **ALIKE, **STREAMED, "stream_options": options, "return_token_ids": True}
        answer = await served.answer(completion("ask", **body, stop=stop))
    *chunks, last = [orjson.loads(event[6:]) for event in answer.body.split(b"\n\n") if event.startswith(b"data: {")]
    counts = accumulate(len(chunk["choices"][0]["token_ids"]) for chunk in chunks[:-1])
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks[:-1]] == list(counts)
    assert all(chunks[-1]["usage"][name] == last["usage"][name] for name in chunks[-1]["usage"])


async def test_an_echoed_prompt_has_the_scores_that_evaluations_need() -> None:
    prompt = "Once upon a time there was"
    async with serving() as served:
        body = {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 1}
        first, again = await ask(served, **body), await ask(served, **body)
        (choice,) = first["choices"]
        told = choice["logprobs"]
        assert choice["text"] == "".join(told["tokens"]) == prompt
        assert told["token_logprobs"][0] is told["top_logprobs"][0] is None
        assert all(max(top.values()) >= own for own, top in pairs(told))
        assert all(own < 0 for own, _ in pairs(told))
        assert len(told["tokens"]) == first["usage"]["prompt_tokens"]
        assert all(prompt.startswith(text, at) for at, text in zip(told["text_offset"], told["tokens"], strict=True))
        (repeated,) = again["choices"]
        assert repeated["logprobs"]["token_logprobs"][1:] == pytest.approx(told["token_logprobs"][1:], abs=1e-3)


def pairs(told: dict[str, Any]) -> list[tuple[float, dict[str, float]]]:
    """Return the log-probability and the alternatives of every token but the first."""
    return list(zip(told["token_logprobs"][1:], told["top_logprobs"][1:], strict=True))


async def test_best_of_returns_the_best_of_the_choices() -> None:
    async with serving() as served:
        body = {"temperature": 1.5, "seed": 11, "max_tokens": 8, "logprobs": 0, "cache_prompt": False}
        every = (await ask(served, n=4, **body))["choices"]
        best = await ask(served, best_of=4, **body)
        (choice,) = best["choices"]
        means = [sum(told) / len(told) for told in (choice["logprobs"]["token_logprobs"] for choice in every)]
        assert choice["text"] == every[means.index(max(means))]["text"]
        assert best["usage"]["completion_tokens"] == 32


async def test_every_constraint_field_is_kept() -> None:
    async with serving() as served:
        free = {"temperature": 1.0, "seed": 1, "max_tokens": 60, "ignore_eos": False}
        for fields, allowed in (
            ({"guided_choice": ["blue ж", 'say "no"\n']}, {"blue ж", 'say "no"\n'}),
            ({"grammar": 'root ::= "x" | "yy"'}, {"x", "yy"}),
            ({"structured_outputs": {"grammar": 'start: "x" | "yy"'}}, {"x", "yy"}),
            ({"response_format": {"type": "json_object", "schema": {"enum": [1, 2]}}}, {"1", "2"}),
        ):
            (choice,) = (await ask(served, **free, **fields))["choices"]
            assert choice["text"] in allowed
            assert choice["finish_reason"] == "stop"


async def test_stop_reason_names_the_token_or_string_that_ended_a_choice() -> None:
    async with serving() as served:
        (free,) = (await ask(served, max_tokens=8, return_token_ids=True))["choices"]
        assert free["stop_reason"] is None
        fourth = free["token_ids"][3]
        (stopped,) = (await ask(served, max_tokens=8, stop_token_ids=[fourth], return_token_ids=True))["choices"]
        assert stopped["stop_reason"] == fourth
        assert stopped["token_ids"] == free["token_ids"][: free["token_ids"].index(fourth) + 1]
        (cut,) = (await ask(served, max_tokens=8, stop=[free["text"][3:6]]))["choices"]
        assert (cut["stop_reason"], cut["finish_reason"]) == (free["text"][3:6], "stop")
        assert free["prompt_token_ids"]


async def test_timings_count_the_tokens_and_their_times() -> None:
    async with serving() as served:
        answer = await ask(served, max_tokens=5, timings=True, cache_prompt=False)
        timed = answer["timings"]
        assert (timed["prompt_n"], timed["predicted_n"]) == (answer["usage"]["prompt_tokens"], 5)
        assert timed["prompt_ms"] > 0
        assert timed["predicted_ms"] > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_name_the_field_at_fault(stream: bool) -> None:
    async with serving() as served:
        for fields, param in (
            ({"suffix": "the end"}, "suffix"),
            ({"guided_regex": "("}, "guided_regex"),
            ({"response_format": {"type": "json_object", "schema": {"type": "nothing"}}}, "response_format"),
            ({"grammar": "root ::= ("}, "grammar"),
            ({"stop_token_ids": [2**31 - 1]}, "stop_token_ids"),
            ({"samplers": ["top_a"]}, "samplers[0]"),
        ):
            assert await refused(served, stream=stream, **fields) == (400, param)


async def test_a_grammar_that_cannot_be_followed_is_an_error_of_the_client() -> None:
    words = " | ".join(f'"word {number}"' for number in range(3000))  # too many only when the first one has begun
    async with serving() as served:
        body: dict[str, Any] = {"guided_grammar": f"start: {words}", "max_tokens": 20}
        assert await refused(served, **body) == (400, "guided_grammar")
        answer = await served.answer(completion("ask", **body, **STREAMED))
        last = answer.body.strip().rpartition(b"data: ")[2]  # the whole body, if the first token has not been sent yet
        error = orjson.loads(last)["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", "guided_grammar")


@pytest.mark.parametrize(
    "body",
    [
        {"best_of": 4},
        {"echo": True, "logprobs": 2},
        {"echo": True, "logprobs": 2, "n": 3, "stream": True},
        {"return_token_ids": True, "timings": True, "stream": True},
    ],
)
async def test_a_hang_up_frees_all_choices(body: dict[str, Any]) -> None:
    async with serving(seconds_per_pass=PASS) as served:
        client = await served.send(completion("leaver", max_tokens=MANY, **body))
        await served.until_in("decode", "leaver")
        client.close()
        await served.until_idle()
