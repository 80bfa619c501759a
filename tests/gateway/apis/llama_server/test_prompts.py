"""Prompts in the formats of llama-server: the description takes what the reader takes."""

from typing import Annotated, Any

import pytest
from jsonschema_rs import Draft202012Validator
from pydantic import BeforeValidator, TypeAdapter, ValidationError

from gateway.apis.llama_server.prompts import MixedForms, read_mixed_prompts

DESCRIBED = Draft202012Validator(TypeAdapter[Any](MixedForms).json_schema())
READER = TypeAdapter[Any](Annotated[object, BeforeValidator(read_mixed_prompts)])
TEXT = {"type": "text", "text": "a"}


@pytest.mark.parametrize(
    ("prompt", "taken"),
    [
        ("a", True),
        ([1, "a"], True),
        (["a", [1], {"prompt_string": "a"}, {"content": [TEXT, TEXT]}], True),
        ({"prompt_string": "a", "multimodal_data": None}, True),
        ([{"prompt_string": "a", "multimodal_data": []}], True),
        ({"prompt_string": "a", "multimodal_data": ["x"]}, False),
        ({"prompt_string": "a", "multimodal_data": False}, False),
        ([{"text": "a"}, "b"], False),
        ([{"prompt_string": 1}], False),
        ([{"content": []}], False),
        ([{"content": [{"type": "image_url"}]}], False),
        ([1, {"prompt_string": "a"}], False),
        ([], False),
        ([[]], False),
        (1, False),
    ],
)
def test_the_description_takes_what_the_reader_takes(prompt: object, *, taken: bool) -> None:
    assert DESCRIBED.is_valid(prompt) == taken
    if taken:
        assert READER.validate_python(prompt)
    else:
        with pytest.raises(ValidationError):
            READER.validate_python(prompt)
