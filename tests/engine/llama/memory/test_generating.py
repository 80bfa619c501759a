"""Models that cannot generate as configured: refused by their metadata alone."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import llama_cpp
import pytest

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama.model import LlamaModel
from tests.architectures.families import FAMILIES, Family, Memory
from tests.architectures.models import family_model, write_family
from tests.c_calls import Handles

PLAIN = next(family for family in FAMILIES if family.name == "plain")


def load(path: Path, **fields: bool) -> None:
    config = EngineConfig(model=str(path), slots=1, context=256, metadata_only=True)
    with LlamaModel(replace(config, **fields), lambda _share: None):  # type: ignore[arg-type]  # all are flags
        pass


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_models_with_a_recurrent_state_cannot_shift(family: Family) -> None:
    path, refused = family_model(family.name), family.memory in {Memory.HYBRID, Memory.RECURRENT}
    load(path)
    with pytest.raises(LoadError, match="cannot shift its context") if refused else nullcontext():
        load(path, context_shift=True)


def test_models_with_positions_in_several_dimensions_cannot_shift(tmp_path: Path) -> None:
    path = tmp_path / "sections.gguf"
    sections = {"rope.dimension_sections": [8, 4, 4, 0]}
    write_family(Family("sections", "qwen2vl", {**PLAIN.parameters, **sections}), path)
    load(path)
    with pytest.raises(LoadError, match="cannot shift its context"):
        load(path, context_shift=True)


def test_a_model_without_a_kv_cache_cannot_generate(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = Handles(monkeypatch)
    monkeypatch.setattr(llama_cpp, "llama_get_memory", lambda _context: None)
    with pytest.raises(LoadError, match="no KV cache"):
        load(family_model("plain"))
    assert handles.alive == {}
