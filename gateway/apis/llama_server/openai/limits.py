"""Limits of the length of an answer, as llama-server understands them."""

from pydantic import Field

from engine import GenerationRequest
from gateway.apis.fields.base import Fields
from gateway.apis.fields.sampling import MAX_INT


class LimitFields(Fields):
    """llama-server's field for the length of an answer."""

    n_predict: int | None = Field(None, ge=-1, le=MAX_INT, description="The same as `max_tokens`. -1: no limit.")


def cut_at_the_end(request: GenerationRequest, limit: int | None) -> GenerationRequest:
    """Return a request whose answer has at most `limit` tokens, or fewer where its slot ends earlier.

    A negative limit is none. Without one, the operator's applies.
    """
    if limit is not None and limit < 0:
        limit = MAX_INT
    return request.replaced(max_tokens=0 if limit == 0 else None, default_max_tokens=limit)
