"""`POST /completion` without a model, in llama-server's shapes."""

from typing import Any

import orjson
import pytest

from engine import (
    Alternative,
    Finished,
    FinishReason,
    Grammar,
    GrammarKind,
    PromptProgress,
    RequestError,
    Text,
    TokenDetail,
)
from tests.gateway.application import app_of
from tests.gateway.asgi import AsgiCall, post
from tests.gateway.fake_engine import BOS, CONTROL, MODEL, FakeEngine, FakeGeneration

pytestmark = pytest.mark.anyio

PATH = "/completion"
DETAILS = (
    TokenDetail(104, b"h", -0.5, (Alternative(104, b"h", -0.5), Alternative(105, b"i", -1.0))),
    TokenDetail(105, b"i", -0.25, (Alternative(105, b"i", -0.25), Alternative(104, b"h", -9999.0))),
)


def finished(generation: FakeGeneration) -> None:
    """End each choice with two tokens."""
    for choice in range(len(generation.request.prompts) * generation.request.n):
        costs = 0.25, 0.5
        generation.put(Finished(choice, "hi", FinishReason.LENGTH, 2, 1, DETAILS, None, *costs, slot=1))


def events_of(call: AsgiCall) -> list[Any]:
    return [orjson.loads(event.removeprefix(b"data: ")) for event in call.content.split(b"\n\n") if event]


@pytest.mark.parametrize("path", ["/completion", "/completions"])
async def test_a_whole_answer_has_every_figure(path: str) -> None:
    engine = FakeEngine(finished)
    reply = await post(app_of(engine), path, {"prompt": "abc", "n_predict": 2, "seed": 7})
    answer = reply.json
    settings, timings = answer.pop("generation_settings"), answer.pop("timings")
    assert answer == {
        "index": 0,
        "content": "hi",
        "tokens": [],
        "id_slot": 1,
        "stop": True,
        "model": "tiny",
        "tokens_predicted": 2,
        "tokens_evaluated": 4,
        "prompt": "<s>abc",
        "has_new_line": False,
        "truncated": False,
        "stop_type": "limit",
        "stopping_word": "",
        "tokens_cached": 5,
    }
    assert (timings["prompt_n"], timings["cache_n"], timings["predicted_n"]) == (3, 1, 2)
    assert (timings["prompt_ms"], timings["predicted_ms"], timings["predicted_per_second"]) == (250.0, 500.0, 2.0)
    chosen = {"seed": 7, "n_predict": 2, "max_tokens": 2, "stream": False}
    defaults = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
    windows = {"repeat_last_n": 64, "dry_penalty_last_n": 64}
    assert {**chosen, **defaults, **windows}.items() <= settings.items()
    request = engine.generations[0].request
    assert request.prompts == ((BOS, 97, 98, 99),)
    assert (request.max_tokens, request.default_max_tokens, request.stream) == (None, 2, False)


@pytest.mark.parametrize(
    ("end", "stop_type", "word", "truncated"),
    [
        (Finished(0, "a", FinishReason.STOP, 1, 0), "eos", "", False),
        (Finished(0, "a", FinishReason.STOP, 1, 0, stop="END"), "word", "END", False),
        (Finished(0, "a", FinishReason.LENGTH, 1, 0), "limit", "", False),
        (Finished(0, "a", FinishReason.LENGTH, MODEL.context - 4, 0), "limit", "", True),
        (Finished(0, "a", FinishReason.LENGTH, 9, 0, discarded=5), "limit", "", True),
    ],
)
async def test_the_kind_of_the_end(end: Finished, stop_type: str, word: str, truncated: bool) -> None:
    reply = await post(app_of(FakeEngine(lambda one: one.put(end))), PATH, {"prompt": "abc"})
    found = reply.json["stop_type"], reply.json["stopping_word"], reply.json["truncated"]
    assert found == (stop_type, word, truncated)


@pytest.mark.parametrize(
    ("prompt", "tokens", "texts"),
    [
        ("a", [(BOS, 97)], ["<s>a"]),
        ("", [(BOS,)], ["<s>"]),
        ([97, 98], [(97, 98)], ["ab"]),
        ({"prompt_string": "a"}, [(BOS, 97)], ["<s>a"]),
        (["a", [98]], [(BOS, 97), (98,)], ["<s>a", "b"]),
        ([1, "a<c>", 2], [(1, 97, CONTROL, 2)], ["\x01a<c>\x02"]),
        (["a", 98, "c"], [(BOS, 97, 98, 99)], ["<s>abc"]),
    ],
)
async def test_prompts_of_texts_and_token_ids(prompt: object, tokens: list[object], texts: list[str]) -> None:
    engine = FakeEngine(finished)
    reply = await post(app_of(engine), PATH, {"prompt": prompt})
    assert list(engine.generations[0].request.prompts) == tokens
    answers = reply.json if isinstance(reply.json, list) else [reply.json]
    assert [answer["prompt"] for answer in answers] == texts


async def test_unknown_fields_of_a_prompt_are_reported() -> None:
    reply = await post(app_of(FakeEngine(finished)), PATH, {"prompt": {"prompt_string": "a", "x": 1}})
    assert reply.header("x-llama-gateway-ignored") == "prompt.x"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}}, "prompt.multimodal_data"),
        ({"prompt": "a", "multimodal_data": ["x"]}, "multimodal_data: is not supported"),
        ({"prompt": ["a", {"prompt_string": 1, "content": []}]}, "prompt[1].prompt_string"),
        ({"prompt": {"content": [{"type": "image_url"}]}}, "prompt.content[0].type"),
        ({"prompt": "a", "n_predict": -2}, "n_predict"),
        ({"prompt": "a", "logit_bias": [["a"]]}, "logit_bias"),
        ({"prompt": "a", "adaptive_target": 0.5}, "adaptive_target"),
        ({"prompt": "a", "min_keep": 2}, "min_keep"),
        ({"prompt": "a", "grammar": "root ::= x", "json_schema": {}}, "json_schema"),
        ({"prompt": "a", "samplers": [1]}, "samplers"),
        ({"prompt": ["a", "b"], "n_cmpl": 65}, "n_cmpl: times the number of prompts should be at most 128"),
        ({"prompt": ["a", "b"], "n": 65}, "n: times the number of prompts should be at most 128"),
    ],
)
async def test_an_invalid_field_is_named(body: dict[str, Any], param: str) -> None:
    engine = FakeEngine()
    reply = await post(app_of(engine), PATH, body)
    error = reply.json["error"]
    assert (reply.status, error["code"], error["type"]) == (400, 400, "invalid_request_error")
    assert param in error["message"]
    assert engine.generations == []


@pytest.mark.parametrize("prompt", [[999], ["a", 999], [["a", 999], "b"]])
async def test_a_token_that_the_model_has_not_names_the_prompt(prompt: object) -> None:
    reply = await post(app_of(FakeEngine()), PATH, {"prompt": prompt})
    assert (reply.status, reply.json["error"]["param"]) == (400, "prompt")


async def test_a_request_may_have_128_choices() -> None:
    engine = FakeEngine(finished)
    reply = await post(app_of(engine), PATH, {"prompt": ["a", "b"], "n": 64})
    assert len(reply.json) == 128


async def test_a_prompt_that_is_too_long_has_its_figures() -> None:
    engine = FakeEngine()
    figures = {"n_prompt_tokens": 300, "n_ctx": 256}
    engine.refusal = RequestError("Too long.", code="context_length_exceeded", param="prompt", figures=figures)
    reply = await post(app_of(engine), PATH, {"prompt": "a"})
    error = reply.json["error"]
    assert "exceeds the available context size" in error.pop("message")
    assert {"code": 400, "type": "exceed_context_size_error", **figures}.items() <= error.items()


async def test_a_refusal_of_the_engine_names_the_field_that_was_sent() -> None:
    refusal = RequestError("Too many.", code="too_large", param="logprobs")
    engine = FakeEngine(lambda generation: generation.fail(refusal))
    reply = await post(app_of(engine), PATH, {"prompt": "a", "n_probs": 3})
    assert (reply.status, reply.json["error"]["param"]) == (400, "n_probs")


@pytest.mark.parametrize(("samplers", "count"), [([], 0), (["temperature"], 1), (None, 9)])
async def test_the_settings_have_the_samplers_that_run(samplers: list[str] | None, count: int) -> None:
    reply = await post(app_of(FakeEngine(finished)), PATH, {"prompt": "a", "samplers": samplers})
    assert len(reply.json["generation_settings"]["samplers"]) == count


@pytest.mark.parametrize(("schema", "source"), [({}, '{"type":"object"}'), ({"type": "null"}, '{"type":"null"}')])
async def test_an_empty_schema_is_that_of_an_object(schema: dict[str, str], source: str) -> None:
    engine = FakeEngine(finished)
    await post(app_of(engine), PATH, {"prompt": "a", "json_schema": schema})
    assert engine.generations[0].request.grammar == Grammar(GrammarKind.JSON_SCHEMA, source)


async def test_names_of_samplers_have_the_spellings_of_llama_server() -> None:
    engine = FakeEngine(finished)
    names = ["Top-K", "topp", "min_p", "TEMP", "typ", "typical_p", "top-n-sigma", "nucleus", "unknown"]
    await post(app_of(engine), PATH, {"prompt": "a", "samplers": names})
    expected = ("top_k", "top_p", "min_p", "temperature", "typ_p", "top_n_sigma")
    assert engine.generations[0].request.sampling.samplers == expected


async def test_sampling_in_the_forms_of_llama_server() -> None:
    engine = FakeEngine(finished)
    body = {
        "prompt": "a",
        "n_predict": -1,
        "samplers": "kt?ti",
        "logit_bias": [[5, 1.5], ["ab", False], ["7", -2]],
        "stop": ["", "END"],
        "temperature": 5,
        "n_indent": 2,
        "t_max_predict_ms": 1500,
        "n_cmpl": 2,
        "repeat_last_n": -1,
        "ignore_eos": True,
    }
    reply = await post(app_of(engine), PATH, body)
    request = engine.generations[0].request
    assert request.sampling.samplers == ("top_k", "temperature", "infill")
    assert request.sampling.logit_bias == ((5, 1.5), (7, -2.0), (97, -1e9), (98, -1e9))
    assert (request.stop, request.indent, request.line_seconds, request.n) == (("END",), 2, 1.5, 2)
    settings = [answer["generation_settings"] for answer in reply.json]
    assert [one["n_predict"] for one in settings] == [-1, -1]
    assert {"bias": None, "token": 97} in settings[0]["logit_bias"]


async def test_the_operators_defaults_apply_to_what_is_not_given() -> None:
    engine = FakeEngine(finished)
    app = app_of(engine, temperature=0.5, seed=42, max_tokens=9)
    await post(app, PATH, {"prompt": "a", "seed": 1})
    request = engine.generations[0].request
    assert (request.sampling.temperature, request.sampling.seed, request.default_max_tokens) == (0.5, 1, 9)


async def test_only_the_requested_fields_are_returned() -> None:
    fields = ["content", "generation_settings/n_predict", "timings/none", "none"]
    reply = await post(app_of(FakeEngine(finished)), PATH, {"prompt": "a", "n_predict": 3, "response_fields": fields})
    assert reply.json == {"content": "hi", "generation_settings/n_predict": 3}


async def test_log_probabilities_are_of_the_model() -> None:
    body = {"prompt": "a", "n_probs": 2, "return_tokens": True}
    reply = await post(app_of(FakeEngine(finished)), PATH, body)
    assert reply.json["tokens"] == [104, 105]
    first, _ = reply.json["completion_probabilities"]
    top = first.pop("top_logprobs")
    assert first == {"id": 104, "token": "h", "bytes": [104], "logprob": -0.5}
    assert top == [first, {"id": 105, "token": "i", "bytes": [105], "logprob": -1.0}]


async def test_probabilities_after_sampling_leave_out_impossible_tokens() -> None:
    engine = FakeEngine(finished)
    reply = await post(app_of(engine), PATH, {"prompt": "a", "n_probs": 2, "post_sampling_probs": True})
    assert engine.generations[0].request.sampled_logprobs
    _, second = reply.json["completion_probabilities"]
    assert second["prob"] == pytest.approx(0.7788, abs=1e-4)
    assert [one["id"] for one in second["top_probs"]] == [105]


def stream(generation: FakeGeneration) -> None:
    """Send the progress of a prompt of 4 tokens, a text of two tokens, and the end."""
    generation.put(
        Text(0, "", progress=PromptProgress(4, 1, 1, 0.0)),
        Text(0, "", progress=PromptProgress(4, 1, 4, 0.3)),
        Text(0, "hi", DETAILS, 0.5),
        Finished(0, "!\n", FinishReason.STOP, 4, 1, (TokenDetail(33, b"!"),), None, 0.3, 1.5),
    )


async def test_a_stream_has_an_event_for_each_token() -> None:
    engine = FakeEngine(stream)
    reply = await post(app_of(engine), PATH, {"prompt": "abc", "stream": True})
    *parts, end = events_of(reply)
    assert [(part["content"], part["tokens"]) for part in parts] == [("h", [104]), ("i", [105]), ("!\n", [33])]
    assert [part["tokens_predicted"] for part in parts] == [1, 2, 3]
    assert not any(part["stop"] or "timings" in part or "prompt_progress" in part for part in parts)
    assert (end["stop"], end["content"], end["has_new_line"], end["stop_type"]) == (True, "", True, "eos")
    assert engine.generations[0].request.token_ids
    assert not engine.generations[0].request.progress


async def test_only_the_last_event_has_the_requested_fields_only() -> None:
    body = {"prompt": "abc", "stream": True, "response_fields": ["stop", "timings/none"]}
    *parts, end = events_of(await post(app_of(FakeEngine(stream)), PATH, body))
    assert [part["content"] for part in parts] == ["h", "i", "!\n"]
    assert end == {"stop": True}


async def test_a_stream_reports_progress_and_times_on_request() -> None:
    body = {"prompt": "abc", "stream": True, "return_progress": True, "timings_per_token": True, "n_probs": 1}
    engine = FakeEngine(stream)
    first, second, third, *_ = events_of(await post(app_of(engine), PATH, body))
    assert engine.generations[0].request.progress
    assert first["prompt_progress"] == {"total": 4, "cache": 1, "processed": 1, "time_ms": 0.0}
    assert (first["timings"]["prompt_n"], first["timings"]["prompt_ms"]) == (0, 0.0)
    assert second["prompt_progress"]["processed"] == 4
    assert (second["timings"]["prompt_n"], second["timings"]["prompt_ms"]) == (3, 300.0)
    assert (third["timings"]["predicted_n"], third["timings"]["predicted_ms"]) == (1, 500.0)
    assert len(third["completion_probabilities"]) == 1


@pytest.mark.parametrize("pieces", [(b"a", b"\xe2\x82", b"\xac"), (b"a\xe2", b"\x82", b"\xac")])
async def test_a_character_of_several_tokens_comes_with_the_last(pieces: tuple[bytes, ...]) -> None:
    first, *others = (TokenDetail(at, piece) for at, piece in enumerate(pieces))
    end = Finished(0, "", FinishReason.STOP, 3, 0)
    engine = FakeEngine(lambda one: one.put(Text(0, "a", (first,)), Text(0, "\u20ac", tuple(others)), end))
    *parts, _ = events_of(await post(app_of(engine), PATH, {"prompt": "a", "stream": True}))
    assert [(part["content"], part["tokens"]) for part in parts] == [("a", [0]), ("", [1]), ("\u20ac", [2])]
