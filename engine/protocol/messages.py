"""Messages between the gateway's process and the engine's.

A message is a tagged struct, so that a frame names its kind. A new query takes two places: its classes and its entry in
`AnyQuery` and `AnyAnswer` here, and its handler in the worker.
"""

from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from engine.config import EngineConfig
from engine.events import EngineMetrics, Event, ModelInfo, SlotInfo, TokenDetail
from engine.request import EmbeddingRequest, GenerationRequest

AnswerT = TypeVar("AnswerT")


class _Message(Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """The encoding of every message: an array of the class name and the fields."""


class Configure(_Message, frozen=True):
    """To the engine, first: the model to load."""

    config: EngineConfig


class Generate(_Message, frozen=True):
    """To the engine: a request to generate. Answered by `Accepted` or `Refused`, unless it is cancelled first."""

    key: int
    """Names the request in all later messages; never used twice."""
    request: GenerationRequest


class Embed(_Message, frozen=True):
    """To the engine: texts to embed. Answered as `Generate`."""

    key: int
    """As in `Generate`."""
    request: EmbeddingRequest


class Cancel(_Message, frozen=True):
    """To the engine: end a request. Always answered by exactly one `Released` event."""

    key: int


class Query(_Message, Generic[AnswerT], frozen=True):
    """Base class of the queries. `AnswerT` is the type of the answer."""


class Inspected(_Message, frozen=True):
    """The answer to `Inspect`: every slot, and the engine's metrics at the same moment."""

    slots: tuple[SlotInfo, ...]
    metrics: EngineMetrics


class Inspect(Query[Inspected], frozen=True):
    """Ask for the state of every slot. Answered at once, however long the current step takes."""


class Tokenized(_Message, frozen=True):
    """The answer to `Tokenize`: the tokens of each text."""

    texts: tuple[tuple[TokenDetail, ...], ...]


class Tokenize(Query[Tokenized], frozen=True):
    """Ask for the tokens of texts."""

    texts: tuple[str, ...]
    special: bool
    """Whether names of control tokens in the texts are parsed as these tokens."""
    begin: bool
    """Whether the model's own beginning-of-text tokens are put before each text."""


class Detokenized(_Message, frozen=True):
    """The answer to `Detokenize`: the bytes of the tokens."""

    text: bytes


class Detokenize(Query[Detokenized], frozen=True):
    """Ask for the text of tokens."""

    tokens: tuple[int, ...]
    special: bool
    """Whether control tokens appear by their names."""


AnyQuery: TypeAlias = Inspect | Tokenize | Detokenize
AnyAnswer: TypeAlias = Inspected | Tokenized | Detokenized


class Ask(_Message, frozen=True):
    """To the engine: a query. Answered by `Answered` or `QueryFailed`, unless it is cancelled first."""

    query_id: int
    """Names the query in all later messages; never used twice."""
    query: AnyQuery


class CancelQuery(_Message, frozen=True):
    """To the engine: the answer to a query is no longer needed."""

    query_id: int


class Loading(_Message, frozen=True):
    """From the engine: the model is loading."""

    progress: float
    """The share that is loaded, 0 to 1."""


class Loaded(_Message, frozen=True):
    """From the engine: the model is loaded; requests may be sent."""

    model: ModelInfo


class LoadFailed(_Message, frozen=True):
    """From the engine: the model cannot be loaded as configured. The process exits."""

    message: str


class Accepted(_Message, frozen=True):
    """From the engine: the request is valid and waits in the queue."""

    key: int
    prompt_tokens: tuple[int, ...]
    """Tokens of each prompt or input, in order."""


class Refused(_Message, frozen=True):
    """From the engine: the request ends here, before it was queued."""

    key: int
    fault: str
    """The name of a class in `engine.errors`."""
    message: str
    code: str | None
    param: str | None


class Step(_Message, frozen=True):
    """From the engine: the events of one step, of all requests."""

    events: tuple[tuple[int, Event], ...]
    """Pairs of a request's key and its event."""
    metrics: EngineMetrics


class Answered(_Message, frozen=True):
    """From the engine: the answer to a query."""

    query_id: int
    answer: AnyAnswer


class QueryFailed(_Message, frozen=True):
    """From the engine: a query has no answer. The other fields are as in `Refused`."""

    query_id: int
    fault: str
    message: str
    code: str | None
    param: str | None


Submission: TypeAlias = Generate | Embed
ToEngine: TypeAlias = Configure | Submission | Cancel | Ask | CancelQuery
FromEngine: TypeAlias = Loading | Loaded | LoadFailed | Accepted | Refused | Step | Answered | QueryFailed
Message: TypeAlias = ToEngine | FromEngine
