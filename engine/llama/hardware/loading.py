"""The load of a model file by llama.cpp."""

import ctypes
import logging
import os
from collections.abc import Callable
from pathlib import Path

import llama_cpp

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.gguf.contents import other_content
from engine.llama import metadata
from engine.llama.hardware.huge_pages import copies_weights
from engine.llama.hardware.params import ModelParams
from engine.llama.hardware.plan import LoadPlan
from engine.llama.log_bridge import LogCapture, first_error
from engine.regular_files import require_regular

logger = logging.getLogger(__name__)

_MAGIC = b"GGUF"


def check_file(path: Path) -> None:
    """Check that a file can be read, and that it begins like a model.

    Raises:
        LoadError: it cannot, or it does not.
    """
    try:
        require_regular(path)
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise LoadError(f"the model file {path} cannot be read: {error.strerror}") from error
    if magic != _MAGIC:
        raise LoadError(f"{path} is not a GGUF file")


def load_params(config: EngineConfig, plan: LoadPlan, available: int) -> ModelParams:
    """Return llama.cpp's parameters of the load, with so many bytes of memory for this process."""
    params = ModelParams(config.hardware, plan.placement)
    params.c.use_extra_bufts = metadata.repacks(config)
    if config.metadata_only:
        params.c.no_alloc, params.c.load_mode = True, llama_cpp.LLAMA_LOAD_MODE_NONE
    elif copies_weights(config, plan.placement, available):
        params.c.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
        logger.info("the weights are copied into huge pages")
    return params


def load_file(path: str, params: ModelParams, progress: Callable[[float], None]) -> tuple[int, list[str]]:
    """Return the C model, and llama.cpp's log of the load. May take minutes.

    Args:
        path: the model file.
        params: the parameters. Those of progress are set here.
        progress: called with the loaded share, 0 to 1.

    Raises:
        LoadError: llama.cpp cannot load the file.
        Exception: `progress` raised it.
    """
    failures: list[Exception] = []

    @llama_cpp.llama_progress_callback  # type: ignore[untyped-decorator]
    def report(share: float, _data: ctypes.c_void_p) -> bool:
        try:
            progress(share)
        except Exception as failure:  # noqa: BLE001 - it cannot pass through C, so it is raised again below
            failures.append(failure)
        return not failures

    params.c.progress_callback = report
    with LogCapture(logging.DEBUG, hide_from=logging.ERROR) as lines:
        handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), params.c)
    if failures:
        if handle:
            llama_cpp.llama_model_free(handle)
        raise failures[0]
    if not handle:
        other = other_content(Path(path))
        raise LoadError(f"{path} cannot be loaded: {f'it is {other}' if other else first_error(lines)}")
    return int(handle), [line.text for line in lines]
