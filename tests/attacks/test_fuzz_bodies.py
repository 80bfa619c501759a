"""Random bodies: each is prepared or refused with a client's error, and what is prepared crosses between processes."""

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import RequestError
from gateway.apis.endpoint import AnyEndpoint, has_body, prepared_type
from gateway.preparation.codec import decode, encode
from gateway.preparation.stages import prepare
from tests.gateway.application import apis
from tests.repeat import TIMES, thorough

ENDPOINTS = [endpoint for api in apis() for endpoint in api.endpoints if has_body(endpoint)]
ENDPOINTS = list({(one.body, one.prepare): one for one in reversed(ENDPOINTS)}.values())
EVERY_ENDPOINT = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.id)

WORDS = ["", "a", "text", "user", "assistant", "tool", "function", "auto", "required", "json_object", "json_schema"]
KEYS = ["type", "role", "content", "text", "name", "id", "function", "arguments", "parameters", "tool_calls", "schema"]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), st.sampled_from(WORDS), st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)),
    max_leaves=12,
)
VALID = {"prompt": "a", "input": "a", "content": "a", "tokens": [97], "messages": [{"role": "user", "content": "a"}]}


def check(endpoint: AnyEndpoint, raw: bytes) -> None:
    try:
        value = prepare(endpoint.body, endpoint.prepare, raw).value
    except RequestError:
        return
    assert decode(encode(value), prepared_type(endpoint)) == value


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one.body.model_fields], ids=lambda one: one.id)
@thorough
@given(data=st.data())
@settings(max_examples=30 * TIMES)
def test_random_values_of_known_fields_are_prepared_or_refused(endpoint: AnyEndpoint, data: st.DataObject) -> None:
    fields = sorted(endpoint.body.model_fields)
    chosen = data.draw(st.dictionaries(st.sampled_from(fields), VALUES, max_size=3))
    valid = {name: value for name, value in VALID.items() if name in fields}
    check(endpoint, orjson.dumps({**valid, **chosen}))


@EVERY_ENDPOINT
@thorough
@given(raw=st.one_of(st.binary(max_size=60), st.text(alphabet='[]{}":,.0-9e+\\u dtrufalsn', max_size=60)))
@settings(max_examples=30 * TIMES)
def test_random_bytes_are_refused(endpoint: AnyEndpoint, raw: bytes | str) -> None:
    check(endpoint, raw if isinstance(raw, bytes) else raw.encode())
