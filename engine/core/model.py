"""What the intake asks of a loaded model. Implemented by `engine.llama.model` and by the fake in `engine.core.fake`."""

from typing import Protocol

from engine.events import ModelInfo


class Model(Protocol):
    """A model's vocabulary and limits. Every method may be called from any thread."""

    @property
    def info(self) -> ModelInfo:
        """What was loaded."""

    @property
    def trims(self) -> bool:
        """Whether the last cells of a sequence can be dropped alone; not so for recurrent and sliding-window models."""

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a prompt, special tokens recognised and the model's own beginning added. May take long."""
