"""A real GGUF of random weights that ranks as Qwen3's re-rankers do: causal, with a template and two classes."""

from pathlib import Path

import gguf

from tests.architectures.families import CONTEXT, FFN, HEADS, LAYERS, WIDTH
from tests.architectures.models import write_weights
from tests.random_model import write_vocabulary

LABELS = ["yes", "no"]
TEMPLATE = "<s>Judge.</s><s>Query: {query}\nDocument: {document}</s><s>Answer:"
_ARCHITECTURE = "qwen3"
_SHARPNESS = 2.0


def write_random_ranker(path: Path) -> None:
    """Write the file. Each machine writes the same bytes."""
    write_weights(path, _described, _SHARPNESS)


def _described(path: Path) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(str(path), _ARCHITECTURE)
    writer.add_name("random ranker")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(WIDTH // HEADS)
    writer.add_value_length(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_classifier_output_labels(LABELS)
    writer.add_chat_template([{"name": "rerank", "template": TEMPLATE}])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    write_vocabulary(writer)
    return writer
