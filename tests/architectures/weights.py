"""Random weights by the names of tensors, so that the greedy text depends on the whole context."""

import re

import numpy as np
from numpy.typing import NDArray

from tests.architectures.tensors import Shape
from tests.random_model import SPECIAL

Weights = NDArray[np.float32]

_LEFT_OUT = re.compile(r"\.(input_)?scale$")
_EMBEDDING = 0.05
"""Standard deviation of embeddings. Small beside the sum of the blocks, or the last token alone would decide."""


def optional(name: str) -> bool:
    """Return whether a file can lack the tensor, and does so here."""
    return bool(_LEFT_OUT.search(name))


def random_weights(rng: np.random.Generator, name: str, shape: Shape, sharpness: float) -> Weights:
    """Return the weights of one tensor. `sharpness` is the factor of what decides on which tokens a token depends."""
    return _fitted(name, rng.standard_normal(shape, dtype=np.float32), sharpness)


def _fitted(name: str, drawn: Weights, sharpness: float) -> Weights:
    """Return normal values, as the tensor of that name needs them."""
    if name == "token_embd.weight":
        return _letters(drawn) * np.float32(_EMBEDDING)
    if re.search("norm|_ln|rope_freqs", name):
        return np.full_like(drawn, _norm(name, sharpness))
    if "ssm_a" in name:  # a state decays by exp(a · dt): slowly, or a token far back would not count
        return -abs(drawn) / np.float32(8)
    if "time_mix_w0" in name:
        return drawn - np.float32(5)  # RWKV's decay, for the same reason
    if drawn.ndim == 1:
        return drawn / np.float32(8)
    factor = sharpness if re.search(r"(attn_q(_b)?|time_mix_output)\.weight", name) else 1
    return (_letters(drawn) if name == "output.weight" else drawn) * np.float32(factor / np.sqrt(drawn.shape[-1]))


def _norm(name: str, sharpness: float) -> float:
    if name.endswith("bias"):
        return 0
    return sharpness if "attn_q_norm" in name else 1


def _letters(drawn: Weights) -> Weights:
    """Return weights by which one of the letters has the highest logit, and no special token or byte."""
    drawn[:SPECIAL] /= 8
    return drawn
