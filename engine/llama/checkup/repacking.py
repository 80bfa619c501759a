"""Test for a crash by weights that are repacked for this CPU."""

import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import llama_cpp

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama.log_bridge import route_log
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner


def examine_repacking(config: EngineConfig) -> bool:
    """Quantise a small model, repack its weights, decode on the CPU, and return True. A machine that cannot dies here.

    Raises:
        LoadError: The model cannot be used for this.
    """
    route_log()
    with TemporaryDirectory() as folder:
        path = str(Path(folder, "quantised.gguf"))
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype, params.nthread = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M, 1
        if llama_cpp.llama_model_quantize(os.fsencode(config.model), os.fsencode(path), params):
            raise LoadError(f"{config.model} cannot be quantised")
        own = replace(config, model=path, repack=True, gpu_layers=0, slots=1, context=256, prefix_store=0)
        with LlamaModel(own, lambda _share: None) as model, LlamaRunner(model, own) as runner:
            runner.probe()
    return True
