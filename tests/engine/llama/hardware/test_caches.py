"""The fit's estimate of caches, compared with what llama.cpp allocates, for every family of architectures."""

import re

import llama_cpp
import pytest

from engine.config import EngineConfig
from engine.llama.context import LlamaContext
from engine.llama.hardware.fitting import layer_bytes
from engine.llama.hardware.model_file import ModelFile, read_model_file
from engine.llama.model import LlamaModel
from tests.architectures.families import FAMILIES, quick_for_some
from tests.architectures.models import family_model

SLOTS, CONTEXT = 4, 2048
_DEBUG = 5  # the lowest level in the logger of llama.cpp
_BUFFER = re.compile(r"llama_(?:kv_cache|memory_recurrent).* buffer size = *([\d.]+) MiB")
_ROUNDING = 0.01
"""MiB. llama.cpp's log has two decimal places."""


def allocated(family: str, caplog: pytest.LogCaptureFixture) -> float:
    """Return the MiB of the caches of a context, by llama.cpp's log."""
    config = EngineConfig(model=str(family_model(family)), slots=SLOTS, context=CONTEXT, threads=1)
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_seq_max = SLOTS * CONTEXT, SLOTS
    with caplog.at_level(_DEBUG, "llama.cpp"), LlamaModel(config, lambda _share: None) as model:
        params.flash_attn_type = model.attention.kind
        caplog.clear()
        LlamaContext(model, config, params, purpose="the context").close()
    return sum(float(match[1]) for line in caplog.messages if (match := _BUFFER.match(line)))


@pytest.mark.parametrize("family", quick_for_some(family.name for family in FAMILIES))
def test_the_estimate_is_never_too_small_and_at_most_twice_as_large(
    family: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = read_model_file(family_model(family))
    weights = sum(size for name, size in file.tensors.items() if name.startswith("blk."))
    total = sum(layer.dense + layer.experts for layer in layer_bytes(file, SLOTS, CONTEXT))
    estimate, real = (total - weights) / 2**20, allocated(family, caplog)
    assert real > 0
    assert real - _ROUNDING <= estimate <= 2 * real + _ROUNDING


def test_an_indexer_of_latent_attention_has_keys_only() -> None:
    """The shape is that of DeepSeek V3.2."""
    numbers = {
        "attention.head_count": [128],
        "attention.head_count_kv": [1],
        "attention.key_length": [576],
        "attention.value_length": [512],
        "attention.key_length_mla": [192],
        "attention.indexer.key_length": [128],
    }
    [layer] = layer_bytes(ModelFile({"blk.0.attn_norm.weight": 0}, numbers), SLOTS, CONTEXT)
    assert layer.dense == SLOTS * CONTEXT * (576 + 512 + 128) * 2
