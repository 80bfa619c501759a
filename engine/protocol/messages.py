"""Messages between the gateway process and the engine process.

A message is a tagged struct: its frame begins with the class name. A new query needs its classes and its entries in
`AnyQuery` and `AnyAnswer` here, and a handler in the worker.
"""

from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from engine.config import EngineConfig
from engine.events import Event, TokenRun
from engine.info import EngineMetrics, HeldPrefix, ModelInfo, SlotInfo
from engine.prompt import TextPrompt
from engine.protocol.fault import Fault
from engine.request import AdapterSet, EmbeddingRequest, GenerationRequest, SlotAction

AnswerT = TypeVar("AnswerT")


class _Message(Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Base class of the messages. Encodes them as an array of the class name and the fields."""


class Configure(_Message, frozen=True):
    """To the engine, as the first message: the model to load."""

    config: EngineConfig
    """Configuration of the engine."""


class SetLogLevel(_Message, frozen=True):
    """To the engine: log from this level on. It may arrive before the model is loaded."""

    level: str
    """Level, as `EngineConfig.log_level`."""


class Generate(_Message, frozen=True):
    """To the engine: submit a generation request. Unless it is cancelled first, `Accepted` or `Refused` replies."""

    key: int
    """Unique id of the request in all later messages; never reused."""
    request: GenerationRequest
    """Request to queue."""


class Embed(_Message, frozen=True):
    """To the engine: submit an embedding request. The replies are the same as for `Generate`."""

    key: int
    """Unique id of the request, as in `Generate`."""
    request: EmbeddingRequest
    """Request to queue."""


class Cancel(_Message, frozen=True):
    """To the engine: cancel a request. The reply is always exactly one `Released` event."""

    key: int
    """Id of the request."""


class EndReasoning(_Message, frozen=True):
    """To the engine: end the reasoning of a request where it has begun. There is no reply."""

    key: int
    """Id of the request."""


class Query(_Message, Generic[AnswerT], frozen=True):
    """Base class of the queries. `AnswerT` is the type of the answer."""


class Inspected(_Message, frozen=True):
    """Answer to `Inspect`: a consistent snapshot of the slots and the metrics."""

    slots: tuple[SlotInfo, ...]
    """State of every slot."""
    metrics: EngineMetrics
    """Metrics of the engine."""


class Inspect(Query[Inspected], frozen=True):
    """Query for the state of every slot. The answer does not wait for the running step."""


class QueueOrder(_Message, frozen=True):
    """Answer to `InspectQueue`."""

    keys: tuple[int, ...]
    """Keys of the generation requests that wait for a slot, in the order in which they will start. The order is an
    estimate: it changes as requests come, and end earlier or later than foreseen."""


class InspectQueue(Query[QueueOrder], frozen=True):
    """Query for the order of the queue. The answer does not wait for the running step."""


class HeldPrefixes(_Message, frozen=True):
    """Answer to `InspectPrefixes`."""

    prefixes: tuple[HeldPrefix, ...]
    """Prefixes of labelled requests whose cells can be reused, the last ones used first."""


class InspectPrefixes(Query[HeldPrefixes], frozen=True):
    """Query for the prefixes whose cells can be reused. The answer does not wait for the running step."""

    most: int
    """Maximum number of prefixes in the answer."""


class Tokenized(_Message, frozen=True):
    """Part of the answer to `Tokenize`, which has as many parts as it takes to bound the size of each frame."""

    tokens: TokenRun
    """Next tokens, in the order of the texts. A text without tokens may have no part."""


class Tokenize(Query[Tokenized], frozen=True):
    """Query for the tokens of texts."""

    texts: tuple[TextPrompt, ...]
    """Texts to tokenise."""
    special: bool
    """True to parse the names of control tokens in the texts as these tokens. A `PromptText` has its own parts."""
    begin: bool
    """True to add the model's beginning-of-sequence tokens to each text."""
    pieces: bool = False
    """True to send the bytes of each token besides its id."""


class Detokenized(_Message, frozen=True):
    """Answer to `Detokenize`."""

    text: bytes
    """Bytes of the tokens, which may end within a character."""


class Detokenize(Query[Detokenized], frozen=True):
    """Query for the text of tokens."""

    tokens: tuple[int, ...]
    """Ids of the tokens."""
    special: bool
    """True to render control tokens by their names."""


class SlotKept(_Message, frozen=True):
    """Answer to `KeepSlot`."""

    tokens: int
    """Number of tokens that were saved, restored or erased."""
    bytes: int
    """Size of the file; 0 without one."""


class KeepSlot(Query[SlotKept], frozen=True):
    """Query to save, restore or erase the cells of a slot. The answer waits until no sequence holds the slot."""

    action: SlotAction
    """The action."""
    slot: int
    """`seq_id` of the slot."""
    file: str = ""
    """Path of the file; empty without one."""
    partition: str = ""
    """Partition of the client, as `GenerationRequest.cache_partition`. Slots with cells of another one are refused."""
    adapters: AdapterSet = ()
    """LoRA adapters of the cells. Slots with cells of others are refused."""


AnyQuery: TypeAlias = Inspect | InspectQueue | InspectPrefixes | Tokenize | Detokenize | KeepSlot
AnyAnswer: TypeAlias = Inspected | QueueOrder | HeldPrefixes | Tokenized | Detokenized | SlotKept


class Ask(_Message, frozen=True):
    """To the engine: submit a query. Unless it is cancelled first, `Answered` or `QueryFailed` replies."""

    query_id: int
    """Unique id of the query in all later messages; never reused."""
    query: AnyQuery
    """Query to answer."""
    client: str = ""
    """Client that takes turns with others, as `GenerationRequest.client`."""


class CancelQuery(_Message, frozen=True):
    """To the engine: cancel a query, because its answer is no longer needed."""

    query_id: int
    """Id of the query."""


class Loading(_Message, frozen=True):
    """From the engine: the model is loading."""

    progress: float
    """Loaded share of the model, from 0 to 1."""


class Loaded(_Message, frozen=True):
    """From the engine: the model is loaded; requests may be sent."""

    model: ModelInfo
    """Description of the model."""


class LoadFailed(_Message, frozen=True):
    """From the engine: the model cannot be loaded as configured. The process exits."""

    message: str
    """Reason, as one sentence."""


class Accepted(_Message, frozen=True):
    """From the engine: the request is valid and queued."""

    key: int
    """Id of the request."""
    prompt_tokens: tuple[int, ...]
    """Number of tokens of each prompt or input, in order."""


class Refused(_Message, frozen=True):
    """From the engine: the request is refused before it was queued. No event follows."""

    key: int
    """Id of the request."""
    fault: Fault
    """Reason."""


class Step(_Message, frozen=True):
    """From the engine: the events of all requests in one step."""

    events: tuple[tuple[int, Event], ...]
    """Pairs of a request's key and its event."""
    metrics: EngineMetrics
    """Metrics of the same moment."""


class Working(_Message, frozen=True):
    """From the engine: the intake works on requests or queries that have no reply yet, or a long step goes on.

    Sent after a piece of work, or a part of the step, at most once a second. It is progress like a finished step: the
    engine does not send it while a step that does not go on, or another piece of work, takes so long that the engine
    may be stuck.
    """


class Answered(_Message, frozen=True):
    """From the engine: the answer to a query, or a part of it."""

    query_id: int
    """Id of the query."""
    answer: AnyAnswer
    """Answer of the type that the query names."""
    more: bool = False
    """True if another part follows, or `QueryFailed`."""


class QueryFailed(_Message, frozen=True):
    """From the engine: a query has no answer."""

    query_id: int
    """Id of the query."""
    fault: Fault
    """Reason."""


Submission: TypeAlias = Generate | Embed
ToEngine: TypeAlias = Configure | SetLogLevel | Submission | Cancel | EndReasoning | Ask | CancelQuery
FromEngine: TypeAlias = Loading | Loaded | LoadFailed | Accepted | Refused | Step | Working | Answered | QueryFailed
Message: TypeAlias = ToEngine | FromEngine
