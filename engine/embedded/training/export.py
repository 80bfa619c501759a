"""Export of a trained network and its tokenizer to one GGUF file for llama.cpp."""

from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType, TokenType

from engine.embedded.training import tokenizer
from engine.embedded.training.network import Network
from engine.embedded.training.template import TEMPLATE
from engine.embedded.training.tokenizer import Tokenizer

DESCRIPTION = (
    "A tiny demonstration model: adds two numbers below 100, repeats a quoted phrase, counts to 200, calls tools. "
    "Trained from scratch on generated text."
)

_LAYER_NAMES = {
    "attention_norm": "attn_norm",
    "attention.q": "attn_q",
    "attention.k": "attn_k",
    "attention.v": "attn_v",
    "attention.output": "attn_output",
    "feed_forward_norm": "ffn_norm",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.up": "ffn_up",
    "feed_forward.down": "ffn_down",
}


def export(network: Network, words: Tokenizer, file: Path) -> None:
    """Write matrices as 16-bit floats and norms as 32-bit floats, with all metadata that llama.cpp needs."""
    writer = GGUFWriter(file, "llama")
    _describe(writer, network)
    _add_tokenizer(writer, words)
    for name, weight in network.state_dict().items():
        kind = np.float32 if "norm" in name else np.float16
        writer.add_tensor(_name(name), weight.numpy().astype(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _name(name: str) -> str:
    """Return llama.cpp's name of the network's weight `name`."""
    if name.startswith("blocks."):
        _, layer, inner = name.removesuffix(".weight").split(".", 2)
        return f"blk.{layer}.{_LAYER_NAMES[inner]}.weight"
    return {"embedding.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}[name]


def _describe(writer: GGUFWriter, network: Network) -> None:
    shape = network.shape
    writer.add_name("tiny")
    writer.add_description(DESCRIPTION)
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(shape.rope_base)


def _add_tokenizer(writer: GGUFWriter, words: Tokenizer) -> None:
    kinds = [
        TokenType.CONTROL if special in tokenizer.CONTROL else TokenType.USER_DEFINED for special in words.specials
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*map(tokenizer.spelled, words.pieces), *words.specials])
    writer.add_token_types([*[TokenType.NORMAL] * len(words.pieces), *kinds])
    writer.add_token_merges(words.lines())
    writer.add_bos_token_id(words.id(tokenizer.BEGIN))
    writer.add_eos_token_id(words.id(tokenizer.END_OF_TEXT))
    writer.add_eot_token_id(words.id(tokenizer.TURN_END))
    writer.add_pad_token_id(words.id(tokenizer.END_OF_TEXT))
    writer.add_add_bos_token(value=True)
    writer.add_chat_template(TEMPLATE)
