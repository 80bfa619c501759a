"""The entry of the engine's process."""

import gc
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack

from engine.config import EngineConfig
from engine.core.kv.prefix_store import PrefixStore
from engine.llama.embedder import LlamaEmbedder, embedding_limits
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.worker.loaded import LoadedModel
from engine.worker.pipes import MessageReader, MessageWriter
from engine.worker.worker import EXIT_FAULT, EXIT_OK, serve

logger = logging.getLogger(__name__)


def load(config: EngineConfig, progress: Callable[[float], None], stack: ExitStack) -> LoadedModel:
    """Load a GGUF and prove that this machine can run it. Raises `LoadError`.

    A model that generates gets an embedder only when somebody asks for embeddings, for it takes memory.
    """
    model = stack.enter_context(LlamaModel(config, progress))
    limits = embedding_limits(model)
    if not model.info.generates:
        embedder = stack.enter_context(LlamaEmbedder(model, config, limits))
        embedder.probe()
        return LoadedModel(model, None, limits, lambda: embedder)
    runner = stack.enter_context(LlamaRunner(model, config))
    store = PrefixStore(model.prefix_store, runner.probe().of)
    return LoadedModel(model, runner, limits, lambda: stack.enter_context(LlamaEmbedder(model, config, limits)), store)


def main() -> None:
    """Serve messages that come on standard input; answers go to what was standard output.

    Descriptor 1 becomes standard error, because C libraries print to it when they please. The process leaves by
    `_exit`: nothing may hang on a thread inside a driver, and the operating system frees what is left.
    """
    gc.freeze()  # a full collection would look through all that was imported, while a pass waits
    out = os.dup(1)
    os.dup2(2, 1)
    code = EXIT_FAULT
    try:
        serve(MessageReader(0), MessageWriter(out), load)
        code = EXIT_OK
    except BaseException:
        logger.critical("the engine's reader failed", exc_info=True)
    finally:
        logging.shutdown()
        os._exit(code)
