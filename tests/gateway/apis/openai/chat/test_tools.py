"""The tools that a chat request offers, by the current fields and the deprecated ones."""

from typing import Any

import pytest
from pydantic import ValidationError

from engine import Grammar, GrammarKind, RequestError
from gateway.apis.fields.tools import MAX_PROPERTIES, MAX_TOOLS
from gateway.apis.openai.chat.tools import ToolFields, ToolSet
from gateway.chat.custom_inputs import custom_tool
from gateway.chat.tools import Named, Tool
from gateway.middleware.errors import problem_for, validation_problem

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}


def tool(name: str = "add", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]}}


def offer(**fields: Any) -> ToolSet:
    return ToolFields.model_validate(fields).tool_set()


def test_a_request_without_tools_offers_none() -> None:
    assert offer() == ToolSet((), "auto")
    assert offer(tools=None, tool_choice=None, functions=None, function_call=None) == offer()
    assert offer(tools=[], tool_choice="none") == ToolSet((), "none")
    assert offer(function_call="none") == offer()


def test_tools_keep_their_description_and_schema() -> None:
    described = tool(description="Adds.", parameters=SCHEMA, strict=True)
    assert offer(tools=[described]) == ToolSet((Tool("add", "Adds.", SCHEMA, strict=True),), "auto")
    (plain,) = offer(tools=[tool(strict=None, parameters=None)]).tools
    assert plain == Tool("add")
    assert plain.parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("choice", "names", "chosen"),
    [
        ("none", ["a", "b"], "none"),
        ("auto", ["a", "b"], "auto"),
        ("required", ["a", "b"], "required"),
        (named("b"), ["a", "b"], Named("b")),
        (allowed("auto", "b"), ["b"], "auto"),
        (allowed("required", "b", "a"), ["a", "b"], "required"),
    ],
)
def test_tool_choice_selects_tools(choice: object, names: list[str], chosen: object) -> None:
    made = offer(tools=[tool("a"), tool("b")], tool_choice=choice)
    assert ([tool.name for tool in made.tools], made.choice) == (names, chosen)


def test_the_greatest_number_of_tools_is_offered() -> None:
    names = [f"f{i}" for i in range(MAX_TOOLS)]
    for made in (offer(tools=[tool(name) for name in names]), offer(functions=[{"name": name} for name in names])):
        assert [tool.name for tool in made.tools] == names


def test_the_deprecated_fields_mean_the_same() -> None:
    functions = [{"name": "add", "parameters": SCHEMA}]
    assert offer(functions=functions) == offer(tools=[tool(parameters=SCHEMA)])
    assert offer(functions=functions, function_call="none").choice == "none"
    assert offer(functions=functions, function_call={"name": "add"}).choice == Named("add")
    assert ToolFields.model_validate({"functions": functions}).deprecated_calls
    assert not ToolFields.model_validate({"tools": [tool()]}).deprecated_calls


def custom(**form: Any) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": "run", **({"format": form} if form else {})}}


GRAMMAR = Grammar(GrammarKind.REGEX, "a+")
NAMED_CUSTOM = {"type": "custom", "custom": {"name": "run"}}


def test_custom_tools_and_their_choices() -> None:
    regex = custom(type="grammar", grammar={"syntax": "regex", "definition": "a+"})
    assert (
        offer(tools=[custom()]).tools == offer(tools=[custom(type="text")]).tools == (custom_tool("run", None, None),)
    )
    assert offer(tools=[regex]).tools == (custom_tool("run", None, GRAMMAR),)
    assert offer(tools=[tool(), regex], tool_choice=NAMED_CUSTOM).choice == Named("run")
    some = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED_CUSTOM]}}
    assert offer(tools=[tool(), custom()], tool_choice=some) == ToolSet((custom_tool("run", None, None),), "required")


DEEP: dict[str, Any] = {}
for _ in range(300):
    DEEP = {"x": DEEP}

LARGE = {"type": "object", "properties": {f"x{i}": {} for i in range(MAX_PROPERTIES)}}
LARGER = {"type": "object", "properties": {f"x{i}": {} for i in range(MAX_PROPERTIES + 1)}}

WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no function": ({"tools": [{"type": "function"}]}, "tools[0].function", "Field required"),
    "no name": ({"tools": [tool(), {"type": "function", "function": {}}]}, "tools[1].function.name", "Field required"),
    "a name with blanks": ({"tools": [tool("a b")]}, "tools[0].function.name", "pattern"),
    "a long name": ({"tools": [tool("a" * 65)]}, "tools[0].function.name", "pattern"),
    "a schema that is none": ({"tools": [tool(parameters=[])]}, "tools[0].function.parameters", "should be an object"),
    "a deep schema": ({"tools": [tool(parameters=DEEP)]}, "tools[0].function.parameters", "nested too deeply"),
    "a custom tool without a name": ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].custom.name", "required"),
    "a format that is none": ({"tools": [custom(type="json")]}, "tools[0].custom.format.type", "one of text, grammar"),
    "a grammar that is none": (
        {"tools": [custom(type="grammar", grammar={"syntax": "gbnf", "definition": "a"})]},
        "tools[0].custom.format.grammar.syntax",
        "'lark' or 'regex'",
    ),
    "an empty grammar": (
        {"tools": [custom(type="grammar", grammar={"syntax": "lark", "definition": ""})]},
        "tools[0].custom.format.grammar.definition",
        "at least 1",
    ),
    "another tool": ({"tools": [{"type": "web_search"}]}, "tools[0].type", "one of function, custom"),
    "a custom tool that is a function": (
        {"tools": [tool("run")], "tool_choice": {"type": "custom", "custom": {"name": "run"}}},
        "tool_choice",
        "names the custom tool 'run', which is not offered",
    ),
    "a function that is a custom tool": (
        {"tools": [custom()], "tool_choice": named("run")},
        "tool_choice",
        "names the function 'run', which is not offered",
    ),
    "one name twice": ({"tools": [tool(), tool()]}, "tools", "each name once"),
    "one function twice": ({"functions": [{"name": "a"}, {"name": "a"}]}, "functions", "each name once"),
    "many properties": ({"tools": [tool(parameters=LARGE), tool("b", parameters=SCHEMA)]}, "tools", "16384 properties"),
    "many properties of old": ({"functions": [{"name": "a", "parameters": LARGER}]}, "functions", "16384 properties"),
    "both": ({"tools": [tool()], "functions": [{"name": "a"}]}, "functions", "cannot be combined with tools"),
    "a choice of nothing": ({"tool_choice": "required"}, "tool_choice", "no tools are offered"),
    "a stranger": ({"tools": [tool()], "tool_choice": named("sub")}, "tool_choice", "'sub', which is not offered"),
    "a choice of no functions": ({"function_call": {"name": "a"}}, "function_call", "functions, which are not given"),
    "a function among tools": (
        {"tools": [tool("a")], "function_call": {"name": "a"}},
        "function_call",
        "functions, which are not given",
    ),
    "no function among tools": (
        {"tools": [tool("a")], "function_call": "none"},
        "function_call",
        "functions, which are not given",
    ),
    "a choice of tools among functions": (
        {"functions": [{"name": "a"}], "tool_choice": "none"},
        "tool_choice",
        "that of functions is function_call",
    ),
    "a function chosen as a tool": (
        {"functions": [{"name": "a"}], "tool_choice": named("a")},
        "tool_choice",
        "that of functions is function_call",
    ),
    "a stranger of old": (
        {"functions": [{"name": "a"}], "function_call": {"name": "b"}},
        "function_call",
        "'b', which is not offered",
    ),
    "a function without a name": (
        {"functions": [{"name": "a"}], "function_call": {}},
        "function_call.name",
        "Field required",
    ),
    "a stranger allowed": (
        {"tools": [tool()], "tool_choice": allowed("auto", "sub")},
        "tool_choice",
        "'sub', which is not offered",
    ),
    "no choice of ours": (
        {"tools": [tool()], "tool_choice": {"type": "web_search"}},
        "tool_choice.type",
        "one of function",
    ),
    "none allowed": (
        {"tools": [tool()], "tool_choice": allowed("auto")},
        "tool_choice.allowed_tools.tools",
        "at least 1 item",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_refusal_names_the_place_in_the_tools(wrong: str) -> None:
    fields, place, reason = WRONG[wrong]
    with pytest.raises((RequestError, ValidationError)) as caught:
        offer(**fields)
    problem = (
        validation_problem(caught.value, ToolFields)
        if isinstance(caught.value, ValidationError)
        else problem_for(caught.value)
    )
    assert problem.param == place
    assert reason in problem.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", {}),
        ("tools", [tool(f"f{i}") for i in range(MAX_TOOLS + 1)]),
        ("tool_choice", "always"),
        ("tool_choice", 5),
        ("parallel_tool_calls", "yes"),
        ("functions", []),
        ("functions", {"name": "a"}),
        ("function_call", "required"),
    ],
)
def test_values_of_wrong_types_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        ToolFields.model_validate({field: value})
    assert caught.value.errors()[0]["loc"][0] == field
