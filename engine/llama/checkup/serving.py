"""Plan for serving a model, by its metadata alone."""

from dataclasses import replace

from engine.checkup import ServingReport
from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama.model import LlamaModel


def examine_serving(config: EngineConfig) -> ServingReport:
    """Return the report. The same code chooses as at a start, but reads no weights.

    Raises:
        LoadError: The model cannot be served as configured.
    """
    config = replace(config, metadata_only=True)
    with LlamaModel(config, lambda _share: None) as model:
        report = ServingReport(
            model=model.info,
            token_bytes=model.memory.token_bytes,
            cache_bytes=sum(model.memory.buffers.cells.values()),
            prefix_store=model.memory.prefix_store,
            aborts=model.aborts,
            largest_step=model.traits.largest_step,
            backend_sampling=model.backend_sampling,
        )
    others = {max(config.slots // 2, 1), config.slots * 2} - {config.slots}
    contexts = {slots: _context(replace(config, slots=slots)) for slots in sorted(others)}
    return replace(report, contexts=contexts)


def _context(config: EngineConfig) -> int:
    try:
        with LlamaModel(config, lambda _share: None) as model:
            return model.info.context
    except LoadError:
        return 0
