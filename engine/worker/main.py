"""Entry point of the engine process."""

import gc
import logging
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from engine.config import EngineConfig
from engine.core.kv.prefix_store import MIN_SPEED_OF_SAVES, PrefixStore
from engine.info import ModelInfo
from engine.llama import devices
from engine.llama.embedding.embedder import EmbedderFactory, LlamaEmbedder, embedding_limits
from engine.llama.hardware.cpu_share import take_cpu_share
from engine.llama.memory.buffers import HOST, Buffers
from engine.llama.memory.gpu_share import gpu_share
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.prefix_files.directory import PrefixDirectory
from engine.prefix_files.fingerprint import fingerprint
from engine.prefix_files.service import PrefixFileService
from engine.processors import usable_processors
from engine.worker.loaded import LoadedModel
from engine.worker.pipes import MessageReader, MessageWriter
from engine.worker.worker import EXIT_FAULT, EXIT_OK, serve

logger = logging.getLogger(__name__)

_SWITCH_INTERVAL = 0.0003
"""Seconds. So long at most the step thread waits for another thread of Python before and after each step, unless
several want to run."""


def load(config: EngineConfig, progress: Callable[[float], None], stack: ExitStack) -> LoadedModel:
    """Load a GGUF file, run a probe on this machine, and return the model.

    A model that generates opens its embedder only for the first embedding request, because it takes memory.

    Args:
        config: Configuration of the engine.
        progress: Called with the loaded share of the model, from 0 to 1.
        stack: Closes the model and its parts.

    Raises:
        LoadError: The model cannot be loaded as configured.
    """
    take_cpu_share(config.hardware)
    _warn_of_threads(config)
    gpu_before = devices.gpu_memory()
    model = stack.enter_context(LlamaModel(config, progress))
    limits = embedding_limits(model)
    if not model.info.generates:
        embedder = stack.enter_context(LlamaEmbedder(model, config, limits))
        embedder.probe()
        model.info = _measured(model, embedder.buffers, gpu_before, 0)
        return LoadedModel(model, None, limits, lambda _cells: embedder)
    facts = fingerprint(config, model.cell_facts)
    files = _open_files(facts, config, stack)
    runner = stack.enter_context(LlamaRunner(model, config, files))
    probed = runner.probe()
    if not probed.drops:
        model.require_checkpoints()
    if probed.copies:
        model.use_copy_speed(*probed.copies)
        saves = probed.copies.per_token >= MIN_SPEED_OF_SAVES
        logger.info("prefixes are %s in host memory", "saved" if saves else "not saved", extra=probed.copies._asdict())
    if model.info.sampling:
        logger.info("the model's file recommends sampling, for requests that do not choose", extra=model.info.sampling)
    store = PrefixStore(model.memory.prefix_store, probed.whole.of, probed.partial.of if probed.partial else None)
    model.info = _measured(model, runner.buffers, gpu_before, model.memory.prefix_store)
    open_embedder = EmbedderFactory(model, config, limits, stack).open
    return LoadedModel(model, runner, limits, open_embedder, store, files, facts)


def _warn_of_threads(config: EngineConfig) -> None:
    """Warn of numbers of threads that were chosen too large."""
    for flag, threads in ("--threads", config.threads), ("--threads-batch", config.threads_batch):
        if threads and threads > usable_processors():
            logger.warning("%s %d is more than the processors of this process: steps are much slower", flag, threads)


def _open_files(facts: bytes, config: EngineConfig, stack: ExitStack) -> PrefixFileService | None:
    """Return the prefixes on disk, if they are configured."""
    if config.prefix_dir is None:
        return None
    directory = PrefixDirectory(Path(config.prefix_dir), facts, config.prefix_dir_bytes)
    return stack.enter_context(closing(PrefixFileService(directory)))


def _measured(model: LlamaModel, context: Buffers, gpu_before: int | None, prefix_store: int) -> ModelInfo:
    """Return the description with the bytes that the process takes."""
    gpu = 0
    if gpu_before is not None:
        difference = gpu_before - (devices.gpu_memory() or 0)
        gpu = gpu_share(
            difference,
            model.weights,
            context.all,
            gpus=len(devices.gpus()),
            offloads=model.placement.offloads,
        )
    return replace(
        model.info,
        host_memory=devices.resident_memory() + prefix_store,
        host_buffers=model.weights.get(HOST, 0) + context.all.get(HOST, 0),
        gpu_memory=gpu,
    )


def main() -> None:
    """Serve messages on standard input, and reply on the original standard output.

    File descriptor 1 is redirected to standard error, because C libraries print to it. The process ends by `_exit`,
    so that it cannot hang on a thread inside a driver; the operating system frees its resources.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.freeze()  # a full collection would traverse all imported modules and delay a step
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
