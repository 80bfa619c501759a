"""The endpoint of `/generate`."""

from gateway.apis.endpoint import Api, Endpoint
from gateway.apis.generate.answer import Failure, GeneratedText, Success
from gateway.apis.generate.endpoint import Generate
from gateway.apis.generate.errors import encode_error
from gateway.apis.generate.request import GenerateBody
from gateway.serving.models import Models


def generate_api(models: Models) -> Api:
    """Return the API of the predecessor, whose answers say whether they went well."""
    create = Endpoint(
        method="POST",
        path="/generate",
        id="generate",
        summary="Continue one text; the answer says whether that went well.",
        handler=Generate(models).create,
        body=GenerateBody,
        answer=Success,
        events=GeneratedText | Success | Failure,
        ends_with_done=False,
        refusals=frozenset({429}),
    )
    return Api((create,), encode_error, Failure)
