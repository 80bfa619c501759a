"""Requests generated from the served description, valid and invalid: each answer matches the description."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from threading import Condition
from typing import Any, TypeAlias

import httpx
import pytest
import schemathesis
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.core import NotSet
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from typing_extensions import override

from gateway.apis.endpoint import AnyEndpoint, has_body
from gateway.middleware.access_log import ENDED
from gateway.openapi.document import plain_path
from tests.gateway import description
from tests.gateway.application import apis
from tests.gateway.chat import templates
from tests.repeat import TIMES, first, thorough
from tests.system.served import GUARD, serving

AnyCase: TypeAlias = Case[Any]

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    negative_data_rejection,
]
FORETOLD = {"invalid_json", "invalid_type", "missing_required_parameter", "unknown_parameter"}
"""Error codes that a schema can predict. The others are about fields that conflict, or about the model."""

INVALID_EXAMPLES = 3 * min(TIMES, 2)
OF_A_REAL_MODEL = 2
ALL = [endpoint for api in apis() for endpoint in api.endpoints]
ENDPOINTS = list({(one.method, one.body, one.answer, one.summary): one for one in reversed(ALL)}.values())
"""All endpoints, without further paths of the same one."""
WITH_BODY_OR_QUERY = [endpoint for endpoint in ENDPOINTS if has_body(endpoint) or endpoint.query]
THAT_RANK = [endpoint for endpoint in ENDPOINTS if "rerank" in endpoint.path]
THAT_GENERATE = [endpoint for endpoint in ENDPOINTS if endpoint.events]


NOT_EVERYWHERE = {
    plain_path(endpoint.path) for endpoint in ENDPOINTS if HTTPStatus.NOT_IMPLEMENTED in endpoint.refusals
}
"""Paths that a flag or the model allows. Their refusal is a server error by its status only."""


class Refusals(logging.Handler):
    """Codes of refusals, from the access log, because the errors of some APIs have none."""

    def __init__(self) -> None:
        super().__init__()
        self._codes: dict[str, str] = {}
        self._news = Condition()

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.msg != ENDED:  # the line of a background response has no code
            return
        with self._news:
            self._codes[record.__dict__["request_id"]] = record.__dict__["cause"]
            self._news.notify_all()

    def code_of(self, response: Response) -> str:
        """Return the code of a refusal. Its line in the log may come after it."""
        (request_id,) = response.headers["x-request-id"]
        with self._news:
            assert self._news.wait_for(lambda: request_id in self._codes, GUARD)
            return self._codes.pop(request_id)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Read the access log inside the context."""
        log = logging.getLogger("gateway.access")
        level = log.level
        log.addHandler(self)
        log.setLevel(logging.INFO)
        try:
            yield
        finally:
            log.removeHandler(self)
            log.setLevel(level)


@dataclass(frozen=True)
class Api:
    """A served gateway with its own description."""

    url: str
    schema: schemathesis.BaseSchema
    refusals: Refusals

    def requests(self, endpoint: AnyEndpoint, mode: GenerationMode) -> SearchStrategy[AnyCase]:
        return self.schema[plain_path(endpoint.path)][endpoint.method].as_strategy(generation_mode=mode)

    def send(self, case: AnyCase) -> Response:
        """Send one request; its answer must pass every check."""
        response = case.call(base_url=self.url, timeout=GUARD)
        note(f"{case.method} {case.path}: {case!r}\nwas answered with {response.status_code}: {response.text}")
        checks = CHECKS
        if response.status_code == HTTPStatus.NOT_IMPLEMENTED and case.operation.path in NOT_EVERYWHERE:
            checks = CHECKS[1:-1]
        elif response.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            checks = CHECKS[:-1]  # a refusal that schemathesis does not know as one
        case.validate_response(response, checks=checks)
        headers = {name: values[0] for name, values in response.headers.items()}
        description.check(case.method, case.formatted_path, response.status_code, headers, response.content)
        return response

    def send_to_default(self, case: AnyCase) -> None:
        """Send one request to the default model, which must answer it."""
        case.body = {**with_small_integers(case.body), "model": "default"}
        assert self.send(case).status_code == 200

    def known_ids(self, endpoint: AnyEndpoint) -> dict[str, str]:
        """Return the path parameters of an existing model, conversation or response."""
        if endpoint.path.startswith("/v1/models"):
            return {"id": "default"}
        if endpoint.path.startswith("/v1/conversations"):
            ids = {"id": self.conversation(), "item_id": "msg_hi"}
            return {name: value for name, value in ids.items() if f"{{{name}}}" in endpoint.path}
        return {"id": self._created("/v1/responses", {"input": "Hi", "max_output_tokens": 1, "background": True})}

    def conversation(self) -> str:
        """Return the id of an existing conversation, with one item."""
        return self._created("/v1/conversations", {"items": [{"role": "user", "content": "Hi", "id": "msg_hi"}]})

    def _created(self, path: str, body: dict[str, Any]) -> str:
        answer: dict[str, Any] = httpx.post(f"{self.url}{path}", json=body, trust_env=False, timeout=GUARD).json()
        return str(answer["id"])


@contextmanager
def served(**options: Any) -> Iterator[Api]:
    refusals = Refusals()
    with (
        refusals.listening(),
        pytest.MonkeyPatch.context() as environment,
        start_blocking_portal("trio") as portal,
        portal.wrap_async_context_manager(serving(context=64, chat_template=templates.CHATML, **options)) as gateway,
    ):
        environment.setenv("NO_PROXY", "127.0.0.1")
        url = f"http://127.0.0.1:{gateway.port}"
        description_served = httpx.get(f"{url}/openapi.json", trust_env=False, timeout=GUARD).json()
        yield Api(url, schemathesis.openapi.from_dict(description_served), refusals)


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """A gateway before a model that takes no time and ends every text soon."""
    with served(seconds_per_pass=0) as api:
        yield api


@pytest.fixture(scope="module")
def ranking_api() -> Iterator[Api]:
    """The same with a model that ranks."""
    with served(seconds_per_pass=0, pooling="rank") as api:
        yield api


@pytest.fixture(scope="module")
def real_api() -> Iterator[Api]:
    with served() as api:
        yield api


def for_each(requests: SearchStrategy[AnyCase], examples: int, check: Callable[[AnyCase], object]) -> None:
    """Check some requests, always the same ones."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=requests)
    def drawn(case: AnyCase) -> None:
        check(case)

    drawn()


def with_small_integers(value: Any) -> Any:
    """Bound integers: this server requires them to have 64 bits."""
    if isinstance(value, int):
        return max(-(2**63), min(value, 2**64 - 1))
    if isinstance(value, dict):
        return {name: with_small_integers(part) for name, part in value.items()}
    return [with_small_integers(part) for part in value] if isinstance(value, list) else value


def name_of(endpoint: AnyEndpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


def check_right_requests(api: Api, endpoint: AnyEndpoint, examples: int) -> None:
    expected = {endpoint.status, *(endpoint.refusals & {HTTPStatus.NOT_IMPLEMENTED})}
    if endpoint.path == "/v1/stream":
        expected |= endpoint.refusals  # no stream is kept
    if endpoint.path in {"/api/pull", "/api/delete"}:
        expected |= {HTTPStatus.FORBIDDEN}  # without `--allow-pull`

    def check(case: AnyCase) -> None:
        if not isinstance(case.body, NotSet):  # schemathesis would take it for an invalid body
            case.body = with_small_integers(case.body)
        body = case.body if isinstance(case.body, dict) else {}
        for name in {"model", "name"} & body.keys():
            body[name] = "default" if isinstance(body[name], str) else body[name]
        if body.get("conversation"):
            body["conversation"] = api.conversation()
        if case.query and "model" in case.query:
            case.query["model"] = "default"
        if "id" in case.path_parameters:
            case.path_parameters = api.known_ids(endpoint)
        response = api.send(case)
        if response.status_code == 400:
            assert api.refusals.code_of(response) not in FORETOLD
        else:
            assert response.status_code in expected

    for_each(api.requests(endpoint, GenerationMode.POSITIVE), examples, check)


@pytest.mark.parametrize("examples", first(1, [1, 3]))
@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one not in THAT_RANK], ids=name_of)
def test_valid_requests_are_answered_as_described(api: Api, endpoint: AnyEndpoint, examples: int) -> None:
    check_right_requests(api, endpoint, examples)


@pytest.mark.parametrize("examples", first(1, [1, 3]))
@pytest.mark.parametrize("endpoint", THAT_RANK, ids=name_of)
def test_valid_requests_are_ranked_as_described(ranking_api: Api, endpoint: AnyEndpoint, examples: int) -> None:
    for_each(ranking_api.requests(endpoint, GenerationMode.POSITIVE), examples, ranking_api.send_to_default)


@thorough
@pytest.mark.parametrize("endpoint", WITH_BODY_OR_QUERY, ids=name_of)
def test_invalid_requests_are_refused_as_described(api: Api, endpoint: AnyEndpoint) -> None:
    for_each(api.requests(endpoint, GenerationMode.NEGATIVE), INVALID_EXAMPLES, api.send)


@thorough
@pytest.mark.parametrize("endpoint", THAT_GENERATE, ids=name_of)
def test_a_real_model_answers_valid_requests_as_described(real_api: Api, endpoint: AnyEndpoint) -> None:
    check_right_requests(real_api, endpoint, OF_A_REAL_MODEL)
