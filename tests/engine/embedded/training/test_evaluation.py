"""The evaluation: right answers pass, wrong ones do not, and calls are compared by their meaning."""

from engine.embedded.training import evaluation
from engine.embedded.training.corpus.example import Completion
from engine.embedded.training.evaluation import THRESHOLDS, Case, Score

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


def case(expected: str) -> Case:
    return Case("calls the right tool", Completion("", expected), expected)


def test_an_oracle_passes_and_a_mute_model_fails() -> None:
    cases = list(evaluation.cases(5))
    answers = iter([case.expected for case in cases])
    perfect = evaluation.evaluate(cases, lambda _: next(answers), lambda *_: next(answers))
    mute = evaluation.evaluate(cases, lambda _: "", lambda *_: "")
    assert [score.skill for score in perfect] == list(THRESHOLDS)
    assert all(score.passed and score.rate == 1.0 for score in perfect)
    assert not any(score.passed or score.right for score in mute)


def test_a_call_is_right_whatever_its_blanks_and_order() -> None:
    other = '<tool_call>{"arguments": {"b": 2, "a": 1}, "name": "add"}</tool_call>'
    assert evaluation.is_right(case(CALL), other)
    assert not evaluation.is_right(case(CALL), CALL.replace("2", "3"))
    assert not evaluation.is_right(case(CALL), CALL + " and more")
    assert not evaluation.is_right(case(CALL), "<tool_call>{</tool_call>")


def test_a_text_is_right_only_as_a_whole() -> None:
    assert evaluation.is_right(case("42"), "42")
    assert not evaluation.is_right(case("42"), "42 ")
    assert not evaluation.is_right(case("42"), "420")


def test_a_message_of_the_api_reads_as_the_model_writes_it() -> None:
    function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    message = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
    assert evaluation.as_text(message) == CALL
    assert evaluation.as_text({"role": "assistant", "content": "Hello!"}) == "Hello!"


def test_the_table_marks_skills_below_their_threshold() -> None:
    shown = evaluation.table([Score("counts", 10, 9), Score("greets", 10, 10)])
    counts, greets = shown.splitlines()[1:]
    assert "9/10" in counts
    assert counts.endswith("too low")
    assert greets.endswith("95%")
