"""Demonstration model that ships with the program, trained by `engine.embedded.training.train` on generated text.

The import of this package is cheap: the training code and its libraries are imported only by the training script.
"""

from pathlib import Path


def path() -> Path:
    """Return the path of the model's GGUF file."""
    return Path(__file__).with_name("tiny.gguf")
