"""Pages of stored items, and the query parameters that choose one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field
from starlette.datastructures import QueryParams

from engine import RequestError
from gateway.apis.endpoint import Described
from gateway.apis.fields.nested import Nested, refusal
from gateway.apis.openai.responses.answer import ItemList
from gateway.apis.openai.responses.encoded import EncodedItem

Include: TypeAlias = Literal[
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "message.input_image.image_url",  # this and the rest: of tools and media that no response here has
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
]
Includes: TypeAlias = Annotated[list[Include], Field(max_length=64, fail_fast=True)]
"""Parts of items that a client asks for."""

INCLUDE_PARAMETER: Described = {
    "name": "include",
    "in": "query",
    "description": "Has no effect: items have all their parts.",
    "schema": {"type": "array", "items": {"type": "string", "enum": list(get_args(Include))}, "maxItems": 64},
}
PAGE_PARAMETERS: tuple[Described, ...] = (
    {
        "name": "limit",
        "in": "query",
        "description": "Maximum number of items.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    },
    {
        "name": "order",
        "in": "query",
        "description": "Order of the items: the first one first, or the last one first.",
        "schema": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
    },
    {
        "name": "after",
        "in": "query",
        "description": "Id of an item of the list. The page begins after it.",
        "schema": {"type": "string"},
    },
    INCLUDE_PARAMETER,
)


class Included(Nested):
    """Query parameters of items."""

    include: Includes = Field(default_factory=list)


class Page(Nested):
    """Query parameters of a page of items."""

    limit: int = Field(20, ge=1, le=100, strict=False)
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None
    include: Includes = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ItemPage:
    """A page of items."""

    items: Sequence[EncodedItem]
    """Items of the page, in its order."""
    has_more: bool
    """True if more items follow."""


def read_page(query: QueryParams) -> Page:
    """Return the page that a query asks for. Raises `ValidationError`."""
    return Page.model_validate(_values(query))


def check_include(query: QueryParams) -> None:
    """Check the parts that a query asks for. Raises `ValidationError`."""
    Included.model_validate(_values(query))


def page_of(items: Sequence[EncodedItem], page: Page) -> ItemPage:
    """Return a page of items in their order of storage. Raises `RequestError` if `after` is none of them."""
    ordered = items if page.order == "asc" else items[::-1]
    if page.after is not None:
        places = [at for at, item in enumerate(ordered) if item.id == page.after]
        if not places:
            raise unknown_after()
        ordered = ordered[places[0] + 1 :]
    return ItemPage(ordered[: page.limit], len(ordered) > page.limit)


def unknown_after() -> RequestError:
    """Return the error for `after` that is none of the items."""
    return refusal("after", "should be the id of one of the items")


def item_list(page: ItemPage) -> ItemList:
    """Return a page as an answer."""
    first, last = (page.items[0].id, page.items[-1].id) if page.items else ("", "")
    return {
        "object": "list",
        "data": [item.fragment() for item in page.items],
        "has_more": page.has_more,
        "first_id": first,
        "last_id": last,
    }


def _values(query: QueryParams) -> dict[str, object]:
    return {**query, "include": query.getlist("include") + query.getlist("include[]")}
