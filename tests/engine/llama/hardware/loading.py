"""Loads a model and computes its logits after a text."""

import llama_cpp
import numpy as np

from engine.config import EngineConfig
from engine.llama.context import LlamaContext
from engine.llama.model import LlamaModel

TEXT = "Once upon a time there was a little"


def logits(settings: EngineConfig) -> list[float]:
    """Return the logits after a text."""
    with LlamaModel(settings, lambda _share: None) as model:
        tokens = model.tokenize(TEXT)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = 256
        with LlamaContext(model, settings, params, purpose="the context") as context:
            row_tokens = (llama_cpp.llama_token * len(tokens))(*tokens)
            batch = llama_cpp.llama_batch_get_one(row_tokens, len(tokens))
            assert llama_cpp.llama_decode(context.handle, batch) == 0
            row = llama_cpp.llama_get_logits_ith(context.handle, -1)
            return list(np.ctypeslib.as_array(row, (model.info.vocabulary,)).astype(float))
