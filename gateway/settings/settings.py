"""All settings of the server."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gateway.settings.cluster import ClusterSettings
from gateway.settings.llama_server import LlamaServerSettings
from gateway.settings.network import NetworkSettings
from gateway.settings.values import shared_place
from gateway.storage.place import check_place


class Settings(NetworkSettings, LlamaServerSettings, ClusterSettings):
    """All settings of the operator. Times are in seconds unless the name has another unit."""

    request_timeout: float = Field(
        600, gt=0, le=604_800, title="SECONDS", description="maximum total time of a request, including its answer"
    )
    queue_timeout: float = Field(
        300, gt=0, le=604_800, title="SECONDS", description="maximum time that a request waits for a slot"
    )
    client_patience: float = Field(
        30,
        gt=0,
        le=604_800,
        title="SECONDS",
        description="maximum time that a client leaves text unread; its request is then cancelled",
    )
    stream_interval_ms: float = Field(
        0,
        ge=0,
        le=5000,
        title="MS",
        description="minimum time between two pieces of a stream; text that arrives meanwhile is sent together, which "
        "saves CPU time with many streams; 0: all text is sent at once",
    )
    body_limit: int = Field(8 * 2**20, ge=1, le=2**31 - 1, title="BYTES", description="maximum size of a request body")
    body_budget: int = Field(
        64 * 2**20,
        ge=1,
        le=2**50,
        title="BYTES",
        description="total size of the request bodies in memory; further large bodies wait to be read",
    )
    strict_fields: bool = Field(
        False, description="refuse requests with unknown fields instead of reporting them in a header"
    )
    answers_like: Literal["openai", "llama-server"] = Field(
        "openai",
        description="whose details the routes of OpenAI's API have: llama-server adds timings to answers, takes any "
        "name for its only model, continues a last message of the assistant, and has errors of its own",
    )
    stored_responses: int = Field(
        1024,
        ge=1,
        le=100_000,
        title="N",
        description="stored responses and conversations; beyond that, the client with the most loses its least "
        "recently used",
    )
    stored_bytes: int = Field(
        64 * 2**20,
        ge=1,
        le=2**40,
        title="BYTES",
        description="total size of the stored responses and conversations, as JSON with their items",
    )
    responses_store: Annotated[str, Field(min_length=1), AfterValidator(shared_place)] | None = Field(
        None,
        repr=False,
        title="URL",
        description="PostgreSQL database of the stored responses and conversations, for all servers with the same URL; "
        "default: the memory of this process",
    )
    background_limit: int | None = Field(
        None,
        ge=1,
        le=100_000,
        title="N",
        description="background responses of one client that may run or wait; further ones get status 429; default: a "
        "quarter of --slots and --queue-limit",
    )
    usage: Annotated[str, Field(min_length=1), AfterValidator(check_place)] | None = Field(
        None,
        repr=False,
        title="STORE",
        description="store of one row of usage for each request: an SQLite file, or the URL of a PostgreSQL database; "
        "default: the store of --keys",
    )
    grace: float = Field(
        20, ge=0, le=3600, title="SECONDS", description="maximum time that open requests continue after SIGTERM"
    )

    async_backend: Literal["trio", "asyncio"] = Field("trio", description="event loop")
    access_log: Literal["on", "off"] = Field("on", description="log one line for each request, at the level info")
    log_content: bool = Field(False, description="log the beginning of each request's and each response's body")
    traces: Literal["auto", "on", "off"] = Field(
        "auto",
        description="send OpenTelemetry spans; auto sends them if OTEL_EXPORTER_OTLP_ENDPOINT is set",
    )

    @property
    def background_responses(self) -> int:
        """Number of background responses of one client. The default leaves room for other clients."""
        return self.background_limit or max(1, (self.all_slots + self.queue_limit) // 4)
