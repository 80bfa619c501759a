"""Status of the engine: what clients may see of a failure, and which statuses are final."""

import anyio
import pytest

from engine import Engine, EngineConfig, EngineState, EngineStatus, Supervision
from engine.client.status import StatusBoard, without_folders
from engine.client.supervisor import Supervisor
from tests.engine.client.harness import GUARD

CONFIG = EngineConfig(
    model="/models/large/a-00001-of-00002.gguf", adapters=("lora.gguf",), control_vectors=(("/models/v.gguf", 1.0),)
)


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("/models/large/a-00001-of-00002.gguf is no GGUF file", "a-00001-of-00002.gguf is no GGUF file"),
        ("cannot open '/models/large/a-00002-of-00002.gguf'", "cannot open 'a-00002-of-00002.gguf'"),
        ("/models/v.gguf and lora.gguf are for another model", "v.gguf and lora.gguf are for another model"),
        ("see https://example.org/models", "see https://example.org/models"),
    ],
)
def test_files_are_named_without_their_folders(text: str, public: str) -> None:
    assert without_folders(text, CONFIG) == public


def test_a_file_in_the_root_or_the_current_folder_changes_no_text() -> None:
    for model in ("/a.gguf", "a.gguf"):
        assert without_folders("/a.gguf: 1/2", EngineConfig(model=model)) == "/a.gguf: 1/2"


@pytest.mark.parametrize("state", [EngineState.FAILED, EngineState.STOPPED])
def test_a_final_status_stays(state: EngineState) -> None:
    board, final = StatusBoard(), EngineStatus(state, "It has ended.", 0.0, 0)
    board.post(final)
    board.post(EngineStatus(EngineState.READY, "The model is loaded.", 1.0, 0))
    assert board.latest == final


@pytest.mark.anyio
async def test_a_change_since_the_known_status_is_returned_at_once() -> None:
    supervisor = Supervisor(EngineConfig(model="m"), [], Supervision())
    engine, later = Engine(supervisor), EngineStatus(EngineState.READY, "The model is loaded.", 1.0, 0)
    known = engine.status
    supervisor.board.post(later)
    with anyio.fail_after(GUARD):
        assert await engine.status_changed(known) == later
