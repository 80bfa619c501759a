"""Settings of llama-server's own routes."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from gateway.settings.values import folder


class LlamaServerSettings(BaseModel):
    """Settings of llama-server's own routes, with its names."""

    slot_save_path: Annotated[Path, AfterValidator(folder)] | None = Field(
        None,
        title="DIR",
        description="folder of the files that POST /slots/{id} saves and restores; default: it is refused",
    )
    no_slots: bool = Field(False, description="refuse GET /slots and GET /slots/queue")
    resumable_streams: int = Field(
        16,
        ge=0,
        le=10_000,
        title="N",
        description="streams of requests with the header X-Conversation-Id that go on without their clients, and are "
        "kept for five minutes after their end, with 4 MiB each; a quarter for one client; 0: none",
    )
    no_metrics: bool = Field(False, description="refuse /metrics on --port")
    props: bool = Field(False, description="allow POST /props, which changes nothing")
