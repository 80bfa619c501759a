"""Limits of the length of an answer, as llama-server understands them."""

from pydantic import Field

from gateway.apis.fields.base import Fields
from gateway.apis.fields.sampling import MAX_INT


class LimitFields(Fields):
    """llama-server's field for the length of an answer."""

    n_predict: int | None = Field(None, ge=-1, le=MAX_INT, description="The same as `max_tokens`. -1: no limit.")
