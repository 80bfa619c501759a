"""A model to ship with the program: trained by `engine.embedded.training.train` from text that the script makes up.

Importing this package costs nothing: the training code and its libraries are imported only when the script runs.
"""

from pathlib import Path


def path() -> Path:
    """Where the model's GGUF file lies."""
    return Path(__file__).with_name("tiny.gguf")
