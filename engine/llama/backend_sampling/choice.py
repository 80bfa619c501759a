"""The choice of backend sampling for a model."""

import logging

from engine.config import EngineConfig
from engine.llama.hardware.placement import Placement

logger = logging.getLogger(__name__)


def choose_backend_sampling(config: EngineConfig, placement: Placement) -> bool | None:
    """Return whether to use backend sampling; None leaves it to a measurement.

    Without the output layer on a GPU, no logits are copied, and the host selects as fast.
    """
    if config.hardware.split_mode == "tensor":
        if config.backend_sampling:
            logger.warning("--backend-sampling has no effect: llama.cpp cannot do it with --split-mode tensor")
        return False
    if config.backend_sampling is None:
        return None if placement.offloads else False
    return config.backend_sampling
