"""A loaded model, and the lanes that serve its requests."""

from collections.abc import Callable
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.core.embedding.scheduler import EmbeddingScheduler
from engine.core.embedding.step import Embedder, EmbeddingLimits
from engine.core.kv.pooled_ledger import make_ledger
from engine.core.kv.prefix_file import FileService
from engine.core.kv.prefix_files import PrefixFiles
from engine.core.kv.prefix_store import PrefixStore
from engine.core.model import Model
from engine.core.scheduler import Scheduler
from engine.core.step import Runner
from engine.request import EmbeddingRequest, GenerationRequest, Request
from engine.worker.lanes.embedding import EmbeddingLane
from engine.worker.lanes.generation import GenerationLane
from engine.worker.lanes.lane import AnyLane


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, its runner and its embedder."""

    model: Model
    """Vocabulary and limits of the model."""
    runner: Runner | None
    """Runner of the generation steps; None for a model that only computes embeddings."""
    embedding: EmbeddingLimits
    """Limits of the embedder."""
    open_embedder: Callable[[int], Embedder]
    """Opens an embedder with a number of cells: for the first embedding, and for longer ones. Raises `LoadError`."""
    store: PrefixStore | None = None
    """Store that selects the prefixes that outlive their slots; None keeps no prefix."""
    files: FileService | None = None
    """Service that reads and writes the prefixes that outlive the engine; None keeps none."""
    fingerprint: bytes = b""
    """Hash of everything that saved cells depend on besides their tokens."""

    def lanes(
        self, config: EngineConfig, on_progress: Callable[[], None] = lambda: None
    ) -> dict[type[Request], AnyLane]:
        """Return the lane of each kind of request that the model serves.

        Args:
            config: Configuration of the engine.
            on_progress: Called now and then during a long step of embeddings, by its thread.
        """
        target = config.step_target_ms / 1000
        lanes: dict[type[Request], AnyLane] = {}
        if self.runner is not None:
            info, traits = self.model.info, self.model.traits
            files = PrefixFiles(info.context, can_trim=not traits.needs_checkpoints) if self.files else None
            ledger = make_ledger(info.slots, traits, self.store, files)
            scheduler = Scheduler(ledger, step_target=target, queue_limit=config.queue_limit)
            lanes[GenerationRequest] = GenerationLane(scheduler, self.runner, self.model, config.speculation)
        embeddings = EmbeddingScheduler(self.embedding, step_target=target, queue_limit=config.queue_limit)
        lanes[EmbeddingRequest] = EmbeddingLane(embeddings, self.open_embedder, self.model, self.embedding, on_progress)
        return lanes
