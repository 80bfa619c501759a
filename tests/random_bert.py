"""A real GGUF of random weights for embeddings or relevance scores only: BERT's architecture, in F32."""

from pathlib import Path

import gguf
import numpy as np

from tests.random_model import finish

LAYERS, WIDTH, HEADS, FFN, CONTEXT = 2, 32, 4, 64, 128
_WORD = "\u2581"  # how llama.cpp writes the beginning of a word
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
_PIECES = [*_LETTERS, *(_WORD + letter for letter in _LETTERS), *(_WORD + mark for mark in ".,!?")]
VOCABULARY = len(_SPECIAL) + len(_PIECES)


def write_random_bert(path: Path, pooling: gguf.PoolingType = gguf.PoolingType.MEAN) -> None:
    """Write the file. Its tokens are letters, and every text is enclosed in `[CLS]` and `[SEP]`.

    With the pooling RANK it has a classifier.
    """
    writer = gguf.GGUFWriter(str(path), "bert")
    _describe(writer, pooling)
    _vocabulary(writer)
    _weights(writer, classifier=pooling is gguf.PoolingType.RANK)
    finish(writer)


def _describe(writer: gguf.GGUFWriter, pooling: gguf.PoolingType) -> None:
    writer.add_name("random bert")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def _vocabulary(writer: gguf.GGUFWriter) -> None:
    kinds = [gguf.TokenType.CONTROL] * len(_SPECIAL) + [gguf.TokenType.NORMAL] * len(_PIECES)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*_SPECIAL, *_PIECES])
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_mask_token_id(4)


def _weights(writer: gguf.GGUFWriter, *, classifier: bool) -> None:
    rng = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        weights = rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[-1]))
        writer.add_tensor(f"{name}.weight", weights)

    def add_affine(name: str, outputs: int, inputs: int) -> None:
        add(name, outputs, inputs)
        writer.add_tensor(f"{name}.bias", np.zeros(outputs, np.float32))

    def add_norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(WIDTH, np.float32))

    add("token_embd", VOCABULARY, WIDTH)
    add("position_embd", CONTEXT, WIDTH)
    add("token_types", 2, WIDTH)
    add_norm("token_embd_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add_affine(block + name, WIDTH, WIDTH)
        add_norm(f"{block}attn_output_norm")
        add_affine(f"{block}ffn_up", FFN, WIDTH)
        add_affine(f"{block}ffn_down", WIDTH, FFN)
        add_norm(f"{block}layer_output_norm")
    if classifier:
        add_affine("cls", WIDTH, WIDTH)
        add_affine("cls.output", 1, WIDTH)
