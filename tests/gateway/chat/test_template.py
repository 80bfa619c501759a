"""Chat templates: allowed and forbidden features, and errors."""

import re

import pytest

from engine import RequestError
from gateway.chat import template
from gateway.chat.template import ChatTemplate


def rendered(source: str, **variables: object) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>").render(variables)


def refused(source: str, **variables: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        rendered(source, **variables)
    assert (caught.value.code, caught.value.param) == ("chat_template_refused", "messages")
    return caught.value


def test_half_of_a_surrogate_pair_is_refused() -> None:
    assert "surrogates not allowed" in refused('{{ "a\\ud800" }}').message
    assert refused('{{ raise_exception("a\\ud800") }}').message == "a?"


def test_blocks_leave_no_lines_and_bos_and_eos_are_known() -> None:
    source = "{{ bos_token }}\n  {% for m in messages %}\n{{ m.role }}: {{ m['content'] }}{{ eos_token }}\n{% endfor %}"
    assert rendered(source, messages=[{"role": "user", "content": "Hi"}]) == "<s>\nuser: Hi</s>\n"


def test_loops_support_break_and_continue() -> None:
    assert (
        rendered(
            "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% if i == 3 %}{% break %}"
            "{% endif %}{% endfor %}"
        )
        == "023"
    )


@pytest.mark.parametrize(
    ("filtered", "expected"),
    [
        ("tojson", '{"b": "<é>", "a": [1, true, null]}'),
        ("tojson(indent=2)", '{\n  "b": "<é>",\n  "a": [\n    1,\n    true,\n    null\n  ]\n}'),
        ("tojson(ensure_ascii=True)", '{"b": "<\\u00e9>", "a": [1, true, null]}'),
        ("tojson(separators=(',', ':'), sort_keys=True)", '{"a":[1,true,null],"b":"<é>"}'),
    ],
)
def test_json_is_written_as_transformers_writes_it(filtered: str, expected: str) -> None:
    assert rendered(f"{{{{ x | {filtered} }}}}", x={"b": "<é>", "a": [1, True, None]}) == expected


def test_json_of_what_a_filter_gives_is_an_array() -> None:
    assert rendered("{{ x | map(attribute='a') | tojson }}", x=[{"a": 1}, {"a": 2}]) == "[1, 2]"


def test_json_beside_safe_text_is_not_escaped() -> None:
    assert rendered("{{ 'a'|safe + x | tojson }}", x={"b": "<é>"}) == 'a{"b": "<é>"}'


def test_a_method_taken_by_a_filter_stays_in_the_sandbox() -> None:
    assert rendered("{{ ('{0.__class__}' | attr('format'))(x) }}", x="a") == ""


def test_a_list_can_be_a_queue() -> None:
    source = "{% set kept = namespace(ids=[]) %}{% set _ = kept.ids.append(x) %}{{ kept.ids.pop(0) }}{{ kept.ids }}"
    assert rendered(source, x="a") == "a[]"


def test_strftime_now_renders_the_date() -> None:
    assert re.fullmatch(r"\d\d \w{3} 20\d\d", rendered("{{ strftime_now('%d %b %Y') }}"))


def test_generation_blocks_render_their_content() -> None:
    assert rendered("a{% generation %}b{{ x }}{% endgeneration %}c", x=1) == "ab1c"


def test_a_refusal_of_a_template_has_its_own_message() -> None:
    error = refused("{{ raise_exception('Roles must alternate, ' + messages[0].role) }}", messages=[{"role": "tool"}])
    assert error.message == "Roles must alternate, tool"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ messages[0].content + 'x' }}", "unsupported operand type"),
        ("{{ nothing.at.all }}", "'nothing' is undefined"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.clear() }}", "'clear' of 'list' object is unsafe"),
        ("{{ messages[0].pop('role') }}", "'pop' of 'dict' object is unsafe"),
        ("{{ range | tojson }}", "function is not JSON"),
        ("{{ 1 // 0 }}", "by zero"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "recursion"),
        ("{% for i in range(10000000) %}x{% endfor %}", "Range too big"),
    ],
)
def test_an_error_in_a_template_is_a_request_error(source: str, words: str) -> None:
    error = refused(source, messages=[{"role": "user", "content": None}])
    assert error.message.startswith("The chat template cannot take these messages: ")
    assert words in error.message


def test_a_prompt_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "MAX_PROMPT_CHARACTERS", 100)
    assert len(rendered("{% for i in range(100) %}x{% endfor %}")) == 100
    error = refused("{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}")
    assert error.message == "the prompt would be longer than 100 characters"


def test_long_words_are_cut() -> None:
    assert len(refused("{{ raise_exception(x) }}", x="a" * 10_000).message) == template.MAX_REFUSAL_CHARACTERS


@pytest.mark.parametrize("source", ["{% if %}", "{{ x | nothing }}", "{% include 'x' %", "{{"])
def test_an_invalid_template_is_a_value_error(source: str) -> None:
    with pytest.raises(ValueError, match=r"^line 1: "):
        ChatTemplate(source)
