"""Response with a text body."""

from starlette.responses import Response


class TextReply(Response):
    """A response with a text body of one of the media types of its endpoint."""
