"""Status of the engine: what clients may see of a failure."""

import pytest

from engine import EngineConfig
from engine.client.status import without_folders

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
