"""The API of `/generate`."""

from gateway.apis.endpoint import Api
from gateway.apis.generate.answer import Failure, encode_error
from gateway.apis.generate.endpoint import generate_endpoints
from gateway.serving.models import Models


def generate_api(models: Models) -> Api:
    """Return the API of the predecessor. Its answers and errors have a `success` flag."""
    return Api(generate_endpoints(models), encode_error, Failure)
