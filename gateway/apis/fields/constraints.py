"""Fields for structured output: those of OpenAI, llama.cpp, vLLM and SGLang."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from engine import MOST_GRAMMAR_CHARACTERS, Grammar, GrammarKind, strict_schema
from gateway.apis.fields.base import Fields, given
from gateway.apis.fields.nested import missing, refusal

MAX_CHOICES = 1024

_GBNF_RULE = re.compile(r"^[ \t]*[\w-]+[ \t]*::=", re.MULTILINE)


def _schema(value: object) -> object:
    """Return a schema that may be JSON text, as vLLM's clients send it. Raises `ValueError`."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not valid JSON: {error}") from error


SchemaText: TypeAlias = Annotated[str, Field(pattern=r"^\s*\{")]
Schema: TypeAlias = Annotated[
    dict[str, Any], BeforeValidator(_schema, json_schema_input_type=dict[str, Any] | SchemaText)
]
GrammarSource: TypeAlias = Annotated[str, Field(min_length=1, max_length=MOST_GRAMMAR_CHARACTERS)]
Choices: TypeAlias = Annotated[list[str], Field(min_length=1, max_length=MAX_CHOICES)]


class SchemaFormat(Fields):
    """OpenAI's `json_schema`. `name` and `description` have no effect.

    The schema is enforced with or without `strict`, which refuses one with parts that cannot be enforced.
    """

    name: str | None = None
    description: str | None = None
    schema_: Schema | None = Field(None, alias="schema")
    strict: bool = False


class ResponseFormat(Fields):
    """OpenAI's `response_format`. The schema may stand directly in it, as llama.cpp's clients send it.

    There an empty one stands for any object, as in llama-server.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [given(type={"enum": ["text", "json_object"]}), given("json_schema"), given("schema")]
        }
    )

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None
    schema_: Schema | None = Field(None, alias="schema")

    @model_validator(mode="after")
    def _has_its_schema(self) -> "ResponseFormat":
        if self.type == "json_schema" and self.json_schema is None and self.schema_ is None:
            raise missing("json_schema", "Field required where the type is json_schema")
        return self

    def grammar(self) -> Grammar | None:
        """Return the grammar of the format, or None for plain text. Raises `ValueError`."""
        if self.type == "text":
            return None
        if self.type == "json_schema" and self.json_schema is not None and self.json_schema.schema_ is not None:
            return json_schema(self.json_schema.schema_, strict=self.json_schema.strict)
        return json_schema(self.schema_) if self.schema_ else json_object()


class StructuredOutputs(Fields):
    """vLLM's `structured_outputs`. Exactly one of its fields must be given."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [*map(given, ("json", "regex", "choice", "grammar")), given(json_object={"const": True})]
        }
    )

    json_: Schema | None = Field(None, alias="json")
    regex: GrammarSource | None = None
    choice: Choices | None = None
    grammar: GrammarSource | None = None
    json_object: bool = False
    structural_tag: Any = Field(None, json_schema_extra={"type": "null"})

    @model_validator(mode="after")
    def _exactly_one(self) -> "StructuredOutputs":
        if self.structural_tag is not None:
            raise ValueError("structural_tag is not supported")
        asked = (self.json_, self.regex, self.choice, self.grammar, self.json_object or None)
        if sum(value is not None for value in asked) != 1:
            raise ValueError("should have one of json, regex, choice, grammar and json_object")
        return self

    def constraint(self) -> Grammar:
        """Return the grammar of the one field that is given. Raises `ValueError`."""
        if self.json_ is not None:
            return json_schema(self.json_)
        if self.regex is not None:
            return regex(self.regex)
        if self.choice is not None:
            return choice(self.choice)
        return json_object() if self.grammar is None else grammar(self.grammar)


class GrammarFields(Fields):
    """Fields that constrain the text, shared by every endpoint that generates. Two may be given if they say the same.

    An empty `grammar` counts as not given, because llama.cpp's clients send it by default.
    """

    response_format: ResponseFormat | None = None
    grammar: Annotated[str, Field(max_length=MOST_GRAMMAR_CHARACTERS)] | None = None
    json_schema: Schema | None = None
    guided_json: Schema | None = None
    guided_regex: GrammarSource | None = None
    guided_choice: Choices | None = None
    guided_grammar: GrammarSource | None = None
    regex: GrammarSource | None = None
    ebnf: GrammarSource | None = None
    structured_outputs: StructuredOutputs | None = None

    @property
    def constrained_by(self) -> str | None:
        """Name of the first field that constrains the text."""
        return next(iter(self._constraints()), None)

    @property
    def engine_names(self) -> dict[str, str]:
        """The client's names of fields that the engine may refuse, by the engine's names."""
        return {"grammar": self.constrained_by or "grammar"}

    def constraint(self) -> Grammar | None:
        """Return the grammar that the text must match. Raises `RequestError` if it is invalid, or if two differ.

        Clients that do not know the version of vLLM repeat one under its older and its newer name.
        """
        made: Grammar | None = None
        given = self._constraints()
        for name in given:
            try:
                one = _CONVERTERS[name](getattr(self, name))
            except ValueError as error:
                raise refusal(name, str(error)) from error
            if made not in (None, one):
                raise refusal(name, f"cannot be combined with {given[0]}")
            made = one
        return made

    def _constraints(self) -> list[str]:
        """Return the names of the fields that constrain the text."""
        given = [name for name in _CONVERTERS if getattr(self, name) not in (None, "")]
        if self.response_format is not None and self.response_format.type == "text":
            given.remove("response_format")
        return given


def json_schema(schema: Mapping[str, Any], *, strict: bool = False) -> Grammar:
    """Return the grammar of a JSON schema. Parts that cannot be enforced are left out, or refused later if `strict`.

    Raises `ValueError` if the schema is too large or too deep.
    """
    try:
        source = orjson.dumps(strict_schema(schema) if strict else schema).decode()
    except TypeError as error:
        raise ValueError(f"cannot be read: {error}") from error
    return _bounded(Grammar(GrammarKind.JSON_SCHEMA, source))


def json_object() -> Grammar:
    """Return the grammar of any JSON object."""
    return json_schema({"type": "object"})


def regex(source: str) -> Grammar:
    """Return the grammar of a regular expression that matches the whole text."""
    return Grammar(GrammarKind.REGEX, source)


def choice(texts: list[str]) -> Grammar:
    """Return the grammar that allows one of several texts. Raises `ValueError` if they are too long together."""
    alternatives = " | ".join(orjson.dumps(text).decode() for text in texts)  # Lark's strings are JSON's
    return _bounded(Grammar(GrammarKind.LARK, f"start: {alternatives}"))


def _bounded(made: Grammar) -> Grammar:
    if len(made.source) > MOST_GRAMMAR_CHARACTERS:
        raise ValueError(f"should be of at most {MOST_GRAMMAR_CHARACTERS} characters")
    return made


def grammar(source: str) -> Grammar:
    """Return a grammar in llama.cpp's GBNF if its rules have `::=`, else in llguidance's Lark."""
    return Grammar(GrammarKind.GBNF if _GBNF_RULE.search(source) else GrammarKind.LARK, source)


_CONVERTERS: dict[str, Callable[[Any], Grammar | None]] = {
    "response_format": ResponseFormat.grammar,
    "grammar": grammar,
    "json_schema": json_schema,
    "guided_json": json_schema,
    "guided_regex": regex,
    "guided_choice": choice,
    "guided_grammar": grammar,
    "regex": regex,
    "ebnf": grammar,
    "structured_outputs": StructuredOutputs.constraint,
}
"""Converters from each field of `GrammarFields` to a grammar. Of two that differ, the later one here is refused."""
