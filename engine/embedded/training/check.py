"""Check of the exported file: llama.cpp must return the same tokens and the same logits as PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine.embedded.training.llama_cpp_reader import Reader
from engine.embedded.training.network import Network
from engine.embedded.training.tokenizer import BEGIN, Tokenizer

LARGEST_DIFFERENCE = 0.1  # of logits that span about 30; 16-bit weights and activations cause a tenth of it


@dataclass(frozen=True)
class Agreement:
    """Comparison of the logits of llama.cpp and PyTorch over some texts."""

    tokens: int
    """Number of compared tokens."""
    largest: float
    """Largest absolute difference of two logits."""
    same_choice: float
    """Share of tokens with the same most probable successor."""


def agreement(network: Network, words: Tokenizer, reader: Reader, texts: Sequence[str]) -> Agreement:
    """Compare the logits after every token of `texts`.

    Raises:
        ValueError: llama.cpp tokenises a text differently.
    """
    largest, same, tokens = 0.0, 0, 0
    for text in texts:
        ids = [words.id(BEGIN), *words.encode(text)]
        if reader.tokens(text, begin=True) != ids:
            raise ValueError(f"llama.cpp cuts this text differently: {text!r}")
        theirs, ours = reader.logits(ids), _logits(network, ids)
        largest = max(largest, float(np.abs(theirs - ours).max()))
        same += int((theirs.argmax(-1) == ours.argmax(-1)).sum())
        tokens += len(ids)
    return Agreement(tokens, largest, same / tokens)


def _logits(network: Network, ids: Sequence[int]) -> NDArray[np.float32]:
    with torch.no_grad():
        logits: NDArray[np.float32] = network(torch.tensor([ids]), torch.arange(len(ids)).unsqueeze(0))[0].numpy()
    return logits
