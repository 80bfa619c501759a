"""The network: llama's architecture (RMSNorm, rotary positions, SwiGLU, tied embeddings) in PyTorch.

Every choice follows what llama.cpp computes for `general.architecture = llama`, so that the exported file needs no
conversion beyond names: rotary pairs are neighbours (2i, 2i+1), and the output matrix is the embedding matrix.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """The sizes of a network; all that is needed to build it and to describe it in a GGUF file."""

    vocabulary: int
    width: int = 256
    layers: int = 4
    heads: int = 8
    feed_forward: int = 640
    context: int = 2048
    rope_base: float = 10_000.0
    norm_epsilon: float = 1e-5

    @property
    def head_width(self) -> int:
        """Numbers per attention head."""
        return self.width // self.heads


class Rotary(nn.Module):
    """Turns queries and keys by their positions, so that attention sees distances (Su et al., arXiv 2104.09864)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        exponents = torch.arange(0, shape.head_width, 2) / shape.head_width
        angles = torch.outer(torch.arange(shape.context), shape.rope_base**-exponents)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each [batch, 1, time, head_width / 2], for positions [batch, time]."""
        return self.cosine[positions].unsqueeze(1), self.sine[positions].unsqueeze(1)


def rotate(vectors: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotates each neighbouring pair of [batch, heads, time, head_width] by its position's angle."""
    cosine, sine = turn
    even, odd = vectors[..., 0::2], vectors[..., 1::2]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.head_width = shape.heads, shape.head_width
        self.q, self.k, self.v, self.output = (nn.Linear(shape.width, shape.width, bias=False) for _ in range(4))

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """Mixes information from earlier places into each place of x [batch, time, width]."""
        batch, time, width = x.shape
        q, k, v = (
            projection(x).view(batch, time, self.heads, self.head_width).transpose(1, 2)
            for projection in (self.q, self.k, self.v)
        )
        mixed = attend(rotate(q, turn), rotate(k, turn), v)
        return self.output(mixed.transpose(1, 2).reshape(batch, time, width))


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each place's mixture of the values at or before it; all [batch, heads, time, head_width].

    Written out because PyTorch's fused kernel takes two to five times as long for short texts in bfloat16 on a CPU.
    """
    time, head_width = q.shape[2:]
    future = torch.full((time, time), float("-inf"), dtype=v.dtype).triu(1)
    q, k = q.flatten(0, 1).to(v.dtype), k.flatten(0, 1).to(v.dtype)
    scores = torch.baddbmm(future, q, k.transpose(1, 2), alpha=head_width**-0.5)
    return torch.bmm(scores.softmax(-1), v.flatten(0, 1)).view_as(v)


class FeedForward(nn.Module):
    """SwiGLU: one gated hidden layer (Shazeer, arXiv 2002.05202)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transforms each place of x [batch, time, width] by itself."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One layer: attention, then feed-forward, each normalised before and added after."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.attention = Attention(shape)
        self.feed_forward_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """Refines x [batch, time, width]."""
        x = x + self.attention(self.attention_norm(x), turn)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Network(nn.Module):
    """Token ids to logits."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.rotary = Rotary(shape)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def hidden(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The last layer's output [batch, time, width] for tokens and positions, both [batch, time]."""
        x, turn = self.embedding(tokens), self.rotary(positions)
        for block in self.blocks:
            x = block(x, turn)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """A score for each token of the vocabulary [..., vocabulary] from hidden states [..., width]."""
        return functional.linear(hidden, self.embedding.weight)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits [batch, time, vocabulary] for tokens and positions, both [batch, time]."""
        return self.logits(self.hidden(tokens, positions))
