"""What the routes answer that generate nothing."""

from typing import Annotated, Literal, NotRequired

from pydantic import Field

from engine import EngineState
from gateway.apis.answers.shapes import Answer, Count, Timestamp


class Embedding(Answer):
    """A vector; as base64, its numbers are float32 with the low byte first."""

    object: Literal["embedding"]
    index: Count
    embedding: list[float] | Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]


class EmbeddingUsage(Answer):
    """Tokens of the inputs."""

    prompt_tokens: Count
    total_tokens: Count


class Embeddings(Answer):
    """One vector an input, in order."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class TokenPiece(Answer):
    """A token and its text, or its bytes where they are no whole characters."""

    id: Count
    piece: str | list[Count]


class Tokens(Answer):
    """The tokens of a text."""

    tokens: list[Count] | list[TokenPiece]


class Content(Answer):
    """The text of some tokens."""

    content: str


class Prompt(Answer):
    """What a conversation becomes for the model."""

    prompt: str


class InputTokens(Answer):
    """How many tokens the model would read."""

    object: Literal["response.input_tokens"]
    input_tokens: Count


class ModelMeta(Answer):
    """What is known of a model once it is loaded, by llama-server's names."""

    description: str
    n_vocab: Count
    n_ctx: Count
    n_ctx_train: Count
    n_embd: Count
    n_params: Count
    size: Count


class Model(Answer):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: Timestamp
    owned_by: str
    meta: NotRequired[ModelMeta]


class ModelList(Answer):
    """The models that are served."""

    object: Literal["list"]
    data: list[Model]


class Healthy(Answer):
    """Requests are welcome. `restarts` counts those of the engine."""

    status: Literal["ok"]
    restarts: Count


class Unhealthy(Answer):
    """Requests are not welcome now: the state, why, and how far loading has come."""

    status: EngineState | Literal["draining"]
    detail: str
    restarts: Count
    progress: NotRequired[Annotated[float, Field(ge=0, le=1)]]


class Slot(Answer):
    """What a slot does now."""

    id: Count
    is_processing: bool
    state: Literal["idle", "prefill", "decode"]
    request_id: str | None
    active_tokens: Count
    cached_tokens: Count
