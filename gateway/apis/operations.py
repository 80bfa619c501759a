"""Every route: what it takes and what it answers."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from gateway.apis.answers.input_tokens import InputTokens
from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.generate import PATH as GENERATE
from gateway.apis.generate.answer import Failure, GeneratedText, Success
from gateway.apis.generate.request import GenerateBody
from gateway.apis.llama_server.apply_template import Prompt
from gateway.apis.llama_server.health import Healthy, Unhealthy
from gateway.apis.llama_server.slots import Slot
from gateway.apis.llama_server.tokenize_answer import Content, Tokens
from gateway.apis.llama_server.tokenize_request import DetokenizeBody, TokenizeBody
from gateway.apis.openai.chat.answer import ChatChunk, ChatCompletion
from gateway.apis.openai.chat.request import ChatBody
from gateway.apis.openai.completions.answer import Completion, CompletionChunk
from gateway.apis.openai.completions.request import CompletionBody
from gateway.apis.openai.embeddings.answer import Embeddings
from gateway.apis.openai.embeddings.request import EmbeddingBody
from gateway.apis.openai.models.answer import Model, ModelList
from gateway.apis.openai.responses.answer import Deleted, ItemList, Response
from gateway.apis.openai.responses.events import ResponseEvent
from gateway.apis.openai.responses.request import ResponseBody
from gateway.openapi.statuses import Described

NOT_HERE = frozenset({404})
QUEUED = frozenset({404, 429})


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    Attributes:
        method: in lower case.
        path: with its parameters in braces; each is an id.
        id: OpenAI's name for it where there is one.
        summary: one sentence.
        answer: type of the JSON in a 200.
        body: of the request.
        events: type of the JSON in the events of a stream, if the route can stream.
        ends_with_done: whether a stream that went well ends in `[DONE]`.
        query: its parameters, described.
        failure: type of the JSON in a failure.
        refusals: statuses that not every route may have.
        unready: type of the JSON in a 503 besides.
    """

    method: str
    path: str
    id: str
    summary: str
    answer: Any
    body: type[BaseModel] | None = None
    events: Any = None
    ends_with_done: bool = True
    query: tuple[Described, ...] = ()
    failure: Any = ErrorAnswer
    refusals: frozenset[int] = frozenset()
    unready: Any = None


_WHOLE: Described = {
    "name": "stream",
    "in": "query",
    "description": "A response is streamed once, where it is created.",
    "schema": {"type": "boolean", "const": False, "default": False},
}
_PAGE: tuple[Described, ...] = (
    {
        "name": "limit",
        "in": "query",
        "description": "The most items to list.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    },
    {
        "name": "order",
        "in": "query",
        "description": "The first item first, or the last.",
        "schema": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
    },
    {
        "name": "after",
        "in": "query",
        "description": "The id of an item of the list, behind which the page begins.",
        "schema": {"type": "string"},
    },
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "post",
        "/v1/completions",
        "createCompletion",
        "Continue texts.",
        body=CompletionBody,
        answer=Completion,
        events=CompletionChunk | ErrorAnswer,
        refusals=QUEUED,
    ),
    Operation(
        "post",
        "/v1/chat/completions",
        "createChatCompletion",
        "Continue a conversation.",
        body=ChatBody,
        answer=ChatCompletion,
        events=ChatChunk | ErrorAnswer,
        refusals=QUEUED,
    ),
    Operation(
        "post",
        "/v1/chat/completions/input_tokens",
        "countChatTokens",
        "Count the tokens of a conversation, and generate nothing.",
        body=ChatBody,
        answer=InputTokens,
        refusals=NOT_HERE,
    ),
    Operation(
        "post",
        "/v1/responses",
        "createResponse",
        "Continue a conversation, that of a stored response perhaps.",
        body=ResponseBody,
        answer=Response,
        events=ResponseEvent,
        ends_with_done=False,
        refusals=QUEUED,
    ),
    Operation(
        "post",
        "/v1/responses/input_tokens",
        "getinputtokencounts",
        "Count the tokens of an input, and generate nothing.",
        body=ResponseBody,
        answer=InputTokens,
        refusals=NOT_HERE,
    ),
    Operation(
        "get",
        "/v1/responses/{id}",
        "getResponse",
        "A response that is stored or runs in the background.",
        answer=Response,
        query=(_WHOLE,),
        refusals=NOT_HERE,
    ),
    Operation(
        "delete",
        "/v1/responses/{id}",
        "deleteResponse",
        "Forget a response; one that runs is cancelled first.",
        answer=Deleted,
        refusals=NOT_HERE,
    ),
    Operation(
        "post",
        "/v1/responses/{id}/cancel",
        "cancelResponse",
        "End a response that runs in the background.",
        answer=Response,
        refusals=NOT_HERE,
    ),
    Operation(
        "get",
        "/v1/responses/{id}/input_items",
        "listInputItems",
        "The items of a response's own request.",
        answer=ItemList,
        query=_PAGE,
        refusals=NOT_HERE,
    ),
    Operation(
        "post",
        "/v1/embeddings",
        "createEmbedding",
        "Turn texts into vectors.",
        body=EmbeddingBody,
        answer=Embeddings,
        refusals=QUEUED,
    ),
    Operation("get", "/v1/models", "listModels", "The models that are served.", answer=ModelList),
    Operation(
        "get",
        "/v1/models/{id}",
        "retrieveModel",
        "A model, by any name that requests may use.",
        answer=Model,
        refusals=NOT_HERE,
    ),
    Operation(
        "post",
        GENERATE,
        "generate",
        "Continue one text; the answer says whether that went well.",
        body=GenerateBody,
        answer=Success,
        events=GeneratedText | Success | Failure,
        ends_with_done=False,
        failure=Failure,
        refusals=frozenset({429}),
    ),
    Operation(
        "post",
        "/apply-template",
        "applyTemplate",
        "The prompt that a conversation becomes.",
        body=ChatBody,
        answer=Prompt,
        refusals=NOT_HERE,
    ),
    Operation(
        "post",
        "/tokenize",
        "tokenize",
        "The tokens of a text.",
        body=TokenizeBody,
        answer=Tokens,
        refusals=NOT_HERE,
    ),
    Operation(
        "post",
        "/detokenize",
        "detokenize",
        "The text of some tokens.",
        body=DetokenizeBody,
        answer=Content,
        refusals=NOT_HERE,
    ),
    Operation(
        "get",
        "/health",
        "getHealth",
        "Whether requests are welcome.",
        answer=Healthy,
        unready=Unhealthy,
    ),
    Operation("get", "/slots", "listSlots", "What every slot of the engine does now.", answer=list[Slot]),
    Operation("get", "/openapi.json", "getDescription", "This document.", answer=dict[str, Any]),
)
