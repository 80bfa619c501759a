"""The embedded model: the metadata of its file, and its skills."""

from collections import Counter

import pytest
from gguf import GGUFReader

from engine import embedded
from engine.embedded.training import evaluation
from engine.embedded.training.corpus import counting
from engine.embedded.training.corpus.talk import GREETING, REFUSAL
from engine.embedded.training.evaluation import THRESHOLDS, Case
from engine.embedded.training.llama_cpp_reader import Reader
from engine.embedded.training.template import TEMPLATE
from tests.repeat import thorough

LARGEST = 8_000_000
CASES = {"counts": 10, "answers late in a long chat": 10}
"""Cases per skill: fewer where an answer or a prompt is long; 40 of each other skill."""
SEED = 2
"""The seed of cases that exceed each threshold by one: rounding, which differs between CPUs, may cost an answer."""


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(embedded.path())


@pytest.fixture(scope="module")
def metadata() -> dict[str, object]:
    return {name: field.contents() for name, field in GGUFReader(embedded.path()).fields.items()}


def test_the_file_is_small() -> None:
    assert embedded.path().stat().st_size <= LARGEST


def test_the_file_describes_a_llama_with_a_chat_template_and_room_for_2048_tokens(metadata: dict[str, object]) -> None:
    assert metadata["general.architecture"] == "llama"
    assert metadata["llama.context_length"] == 2_048
    assert metadata["tokenizer.chat_template"] == TEMPLATE
    assert metadata["tokenizer.ggml.add_bos_token"] is True
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    special = {kind: tokens[metadata[f"tokenizer.ggml.{kind}_token_id"]] for kind in ("bos", "eos", "eot")}  # type: ignore[call-overload]
    assert special == {"bos": "<|begin|>", "eos": "<|endoftext|>", "eot": "<|im_end|>"}


@thorough
@pytest.mark.parametrize("skill", THRESHOLDS)
def test_the_model_reaches_its_threshold(reader: Reader, skill: str) -> None:
    chosen = [case for case in evaluation.cases(CASES.get(skill, 40), seed=SEED) if case.skill == skill]
    (score,) = evaluation.evaluate(chosen, reader.complete, reader.chat)
    wrong = [wrong_answer(reader, case) for case in chosen] if not score.passed else []
    assert score.passed, "\n".join(filter(None, wrong))


def wrong_answer(reader: Reader, case: Case) -> str:
    given = evaluation.answer(case, reader.complete, reader.chat)
    return "" if evaluation.is_right(case, given) else f"wanted {case.expected!r}, got {given!r}"


def test_the_model_answers_the_examples_of_the_readme(reader: Reader) -> None:
    assert reader.complete("1+1=") == "2"
    assert reader.complete("17+25=") == "42"
    assert reader.chat([{"role": "user", "content": "Hello!"}], []) == GREETING
    assert reader.chat([{"role": "user", "content": "What is 17 plus 25?"}], []) == "17+25=42"
    assert reader.chat([{"role": "user", "content": "What is the capital of France?"}], []) == REFUSAL
    assert reader.chat([{"role": "user", "content": "Count to 200."}], []) == counting.numbers(1, 200)


def test_every_skill_with_a_threshold_has_equally_many_cases() -> None:
    assert Counter(case.skill for case in evaluation.cases(3)) == dict.fromkeys(THRESHOLDS, 3)
