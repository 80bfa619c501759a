"""Endpoint `/prefixes`: the blocks of prompts that this server holds, for routers in front of it."""

from typing import Annotated, cast

from pydantic import Field

from engine import RequestError
from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import Count, JsonObject
from gateway.apis.endpoint import AnyEndpoint, BodilessEndpoint, Call
from gateway.apis.fields.whole_numbers import whole_number
from gateway.apis.llama_server.options import NOT_ALLOWED, refused
from gateway.serving.prefixes import HeldPrefixes

BlockHashes = Annotated[str, Field(pattern="^([0-9a-f]{16})*$", description="16 hexadecimal digits for each block.")]


class PrefixReport(JsonObject):
    """Changes of the held blocks between the states `base` and `sequence`. With `base` 0 all of them are listed."""

    epoch: Annotated[int, Field(description="A later process of the server has a larger one, and begins with nothing.")]
    base: Count
    sequence: Count
    held: BlockHashes
    dropped: BlockHashes
    unanswered: Annotated[list[str], Field(description="Models whose engines did not answer. None of theirs is held.")]


class PrefixEndpoints:
    """Handler of the held prefixes."""

    def __init__(self, prefixes: HeldPrefixes | None) -> None:
        self._prefixes = prefixes

    async def get(self, call: Call[None]) -> JsonReply[PrefixReport]:
        """Return a report since the state that `since` names.

        Raises:
            RefusedError: the server reports none.
            RequestError: `since` is no state.
        """
        if self._prefixes is None:
            raise refused("prefixes endpoint", "with `--prefix-secret`")
        since = whole_number(call.http.query_params.get("since", "0"))
        if since is None:
            raise RequestError("since must be the sequence number of a report", code="invalid_value", param="since")
        report, unanswered = await self._prefixes.report(since)
        return JsonReply(cast("PrefixReport", {**report.to_json(), "unanswered": unanswered}))


def prefix_endpoints(prefixes: HeldPrefixes | None) -> tuple[AnyEndpoint, ...]:
    """Return the endpoint of `/prefixes`. It refuses requests if the server reports none."""
    endpoint = BodilessEndpoint(
        method="GET",
        path="/prefixes",
        id="getPrefixes",
        summary="Report the blocks of prompts that are cached, for routers.",
        handler=PrefixEndpoints(prefixes).get,
        answer=PrefixReport,
        refusals=NOT_ALLOWED,
    )
    return (endpoint,)
