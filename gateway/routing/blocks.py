"""Hashes of the blocks of a prompt, by which routers and replicas name prefixes."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

BLOCK_BYTES = 256
"""Bytes of a block: about 64 tokens of text. A router has no tokenizer, so that blocks are cut by bytes."""
MOST_BLOCKS = 1024
"""Blocks of all prompts of a request that have hashes, in equal shares. Prompts that begin alike for so long need not
be distinguished."""
_HASH_BYTES = 8

Blocks: TypeAlias = Sequence[int]
"""Hashes of the blocks of a prompt, in order. Each names the whole prompt up to its block's end."""


@dataclass(frozen=True, slots=True)
class PromptScope:
    """Requests that may reuse each other's KV cells. Equal prompts of different scopes have different hashes."""

    model: str
    """Name of the model."""
    partition: str = ""
    """Partition of the prompt cache, with the caller's part of it."""
    adapters: tuple[tuple[int, float], ...] = ()
    """LoRA adapters as (id, scale) pairs, in ascending order, none with a scale of 0."""

    def digest(self, secret: bytes = b"") -> bytes:
        """Return a digest of the scope. Without the cluster's secret, hashes of a prompt cannot be guessed from it."""
        fields = (self.model, self.partition, repr(self.adapters))
        text = b"".join(len(field).to_bytes(8, "big") + field for field in (one.encode() for one in fields))
        return blake2b(text, digest_size=_HASH_BYTES, key=secret).digest()


def text_blocks(text: str, scope: PromptScope, secret: bytes = b"", prompts: int = 1) -> tuple[int, ...]:
    """Return the hashes of a rendered prompt, one of so many of its request. A rest that fills no block has none."""
    most = _most_bytes(prompts)
    return _blocks(text[:most].encode(errors="surrogatepass")[:most], b"text", scope.digest(secret))


def token_blocks(tokens: Sequence[int], scope: PromptScope, secret: bytes = b"", prompts: int = 1) -> tuple[int, ...]:
    """Return the hashes of a prompt of token ids, as `text_blocks` does."""
    data = b"".join(token.to_bytes(4, "big", signed=True) for token in tokens[: _most_bytes(prompts) // 4])
    return _blocks(data, b"tokens", scope.digest(secret))


def _most_bytes(prompts: int) -> int:
    """Return the bytes of each of several prompts that have hashes."""
    return max(MOST_BLOCKS // prompts, 1) * BLOCK_BYTES


def _blocks(data: bytes, kind: bytes, chain: bytes) -> tuple[int, ...]:
    hashes = []
    for start in range(0, len(data) - BLOCK_BYTES + 1, BLOCK_BYTES):
        block = blake2b(data[start : start + BLOCK_BYTES], digest_size=_HASH_BYTES, key=chain, person=kind)
        chain = block.digest()
        hashes.append(int.from_bytes(chain, "big"))
    return tuple(hashes)
