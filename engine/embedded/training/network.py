"""Network: llama's architecture (RMSNorm, rotary positions, SwiGLU, tied embeddings) in PyTorch.

It matches llama.cpp's computation for `general.architecture = llama`, so that the export only renames weights: rotary
pairs are neighbours (2i, 2i+1), and the output matrix is the embedding matrix.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Hyperparameters of a network, complete for its construction and for the GGUF metadata."""

    vocabulary: int
    """Number of tokens."""
    width: int = 256
    """Dimension of the hidden states."""
    layers: int = 4
    """Number of blocks."""
    heads: int = 8
    """Number of attention heads per block."""
    feed_forward: int = 640
    """Dimension of the feed-forward layer."""
    context: int = 2048
    """Maximum number of tokens of a sequence."""
    rope_base: float = 10_000.0
    """Base frequency of the rotary positions."""
    norm_epsilon: float = 1e-5
    """Epsilon of the RMSNorm layers."""

    @property
    def head_width(self) -> int:
        """Dimension of one attention head."""
        return self.width // self.heads


class Rotary(nn.Module):
    """Rotary position embedding, which makes attention depend on distances (Su et al., arXiv 2104.09864)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        exponents = torch.arange(0, shape.head_width, 2) / shape.head_width
        angles = torch.outer(torch.arange(shape.context), shape.rope_base**-exponents)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and sines, each [batch, 1, time, head_width / 2], for positions [batch, time]."""
        return self.cosine[positions].unsqueeze(1), self.sine[positions].unsqueeze(1)


def rotate(vectors: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Return [batch, heads, time, head_width] with each neighbouring pair rotated by the angle of its position."""
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
        """Return the attention output for x [batch, time, width]."""
        batch, time, width = x.shape
        q, k, v = (
            projection(x).view(batch, time, self.heads, self.head_width).transpose(1, 2)
            for projection in (self.q, self.k, self.v)
        )
        mixed = attend(rotate(q, turn), rotate(k, turn), v)
        return self.output(mixed.transpose(1, 2).reshape(batch, time, width))


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention over the values; all [batch, heads, time, head_width].

    PyTorch's fused kernel is not used: it takes two to five times as long for short texts in bfloat16 on a CPU.
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
        """Return the transformation of each position of x [batch, time, width]."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Transformer block: attention, then feed-forward, each with pre-normalisation and a residual connection."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.attention = Attention(shape)
        self.feed_forward_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.feed_forward = FeedForward(shape)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """Return the next hidden states for x [batch, time, width]."""
        x = x + self.attention(self.attention_norm(x), turn)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Network(nn.Module):
    """Language model from token ids to logits."""

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
        """Return the hidden states [batch, time, width] for tokens and positions, both [batch, time]."""
        x, turn = self.embedding(tokens), self.rotary(positions)
        for block in self.blocks:
            x = block(x, turn)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., vocabulary] for hidden states [..., width]."""
        return functional.linear(hidden, self.embedding.weight)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the logits [batch, time, vocabulary] for tokens and positions, both [batch, time]."""
        return self.logits(self.hidden(tokens, positions))
