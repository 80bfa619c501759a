"""A real GGUF of random weights for machines without a trained model: llama's architecture, in F32."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

VOCABULARY = 512
_SPACE = "\u2581"  # how SentencePiece writes a space
_LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
_PAIRS = [first + second for first in _LETTERS for second in "aeiou"]
SPECIAL = 3 + 256
"""The number of special tokens and bytes, which come before the letters."""
_PIECES = [_SPACE, *_LETTERS, *map(str.upper, _LETTERS), *".,!?", *(_SPACE + letter for letter in _LETTERS), *_PAIRS]
_PIECES += [_SPACE + pair for pair in _PAIRS][: VOCABULARY - SPECIAL - len(_PIECES)]


@dataclass(frozen=True)
class Shape:
    """Sizes of the model."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    ffn: int = 128
    context: int = 2048


SMALL = Shape()


def write_random_model(path: Path, shape: Shape = SMALL, metadata: Mapping[str, float | str] | None = None) -> None:
    """Write the file, with more metadata. Its greedy text is letters: one letter has a logit above 0, all others 0."""
    writer = gguf.GGUFWriter(str(path), "llama")
    _describe(writer, shape)
    for key, value in (metadata or {}).items():
        kinds = {int: gguf.GGUFValueType.INT32, float: gguf.GGUFValueType.FLOAT32, str: gguf.GGUFValueType.STRING}
        writer.add_key_value(key, value, kinds[type(value)])
    write_vocabulary(writer)
    _weights(writer, shape)
    finish(writer)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write what was added to the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name("random")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def write_vocabulary(writer: gguf.GGUFWriter) -> None:
    """Add a vocabulary of letters and syllables, with a token for each byte."""
    kinds = gguf.TokenType
    tokens = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", kinds.BYTE) for byte in range(256)]
    tokens += [(piece, kinds.NORMAL) for piece in _PIECES]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([-float(at) for at in range(len(tokens))])
    writer.add_token_types([int(kind) for _, kind in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)


def _weights(writer: gguf.GGUFWriter, shape: Shape) -> None:
    rng = np.random.default_rng(0)

    def random(*sizes: int) -> NDArray[np.float32]:
        return rng.standard_normal(sizes, dtype=np.float32) / np.float32(np.sqrt(sizes[-1]))

    output = random(VOCABULARY, shape.width)
    output[:SPECIAL] = 0
    writer.add_tensor("token_embd.weight", random(VOCABULARY, shape.width) * 8)
    writer.add_tensor("output.weight", output)
    writer.add_tensor("output_norm.weight", np.ones(shape.width, np.float32))
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{block}{name}.weight", np.ones(shape.width, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            writer.add_tensor(f"{block}{name}.weight", random(shape.width, shape.width))
        writer.add_tensor(f"{block}ffn_gate.weight", random(shape.ffn, shape.width))
        writer.add_tensor(f"{block}ffn_up.weight", random(shape.ffn, shape.width))
        writer.add_tensor(f"{block}ffn_down.weight", random(shape.width, shape.ffn))
