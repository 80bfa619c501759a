"""Bytes of the KV cache and of recurrent states, from the header of a model's file.

The layout is llama.cpp's. Sliding-window layers count as if they kept all tokens, which the engine lets them do if
memory allows. Snapshots of states, which speculation may keep, are not counted: a tenth of the memory at most.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.gguf.header import Value, layers_of, number, numbers

_BITS = {"f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5, "iq4_nl": 4.5}
"""Bits of a number in the KV cache by its type, with its part of a block's scale."""
_STATE_NUMBER = 4
"""Bytes of a number in a recurrent state."""


@dataclass(frozen=True, slots=True)
class CellBytes:
    """Memory of sequences. Both are 0 if the header does not say."""

    token: int
    """Bytes of the cells of one token."""
    sequence: int
    """Bytes of the recurrent states of one sequence, whatever its length."""


def cell_bytes(header: Mapping[str, Value], key_type: str, value_type: str) -> CellBytes:
    """Return the bytes of all layers: see `layer_cells`."""
    layers = layer_cells(header, key_type, value_type)
    return CellBytes(sum(layer.token for layer in layers), sum(layer.sequence for layer in layers))


def layer_cells(header: Mapping[str, Value], key_type: str, value_type: str) -> list[CellBytes]:
    """Return the bytes of each layer, by the types of keys and values. Raises `ValueError` if the header is damaged."""
    heads, indexer = _kept_heads(header), _indexer_sizes(header)
    key_bytes, value_bytes = _BITS[key_type] / 8, _BITS[value_type] / 8
    state = _state_numbers(header) * _STATE_NUMBER
    everywhere = 0 not in heads  # layers with both have no others beside them
    sizes = zip(heads, _head_sizes(header, "key"), _head_sizes(header, "value"), indexer, strict=False)
    return [
        CellBytes(
            int((count * key + indexed_key) * key_bytes + (count * value + indexed_value) * value_bytes),
            state if everywhere or not count else 0,
        )
        for count, key, value, (indexed_key, indexed_value) in sizes
    ]


def _kept_heads(header: Mapping[str, Value]) -> list[int]:
    """Return the number of heads of each layer whose keys and values are kept."""
    layers, queries = layers_of(header), number(header, "attention.head_count")
    heads = numbers(header, "attention.head_count_kv", layers, queries) if queries else [0] * layers
    every = number(header, "full_attention_interval") or 1
    own = layers - number(header, "attention.shared_kv_layers")  # the last layers may use the cells of others
    return [count if at % every == 0 and at <= own else 0 for at, count in enumerate(heads, 1)]


def _head_sizes(header: Mapping[str, Value], part: str) -> list[int]:
    """Return how many numbers a head keeps in each layer as a key or a value."""
    layers, queries = layers_of(header), number(header, "attention.head_count")
    size = number(header, f"attention.{part}_length") or number(header, "embedding_length") // max(queries, 1)
    if part == "value" and number(header, "attention.key_length_mla"):
        size = 0  # of latent attention, a value is a part of its key
    in_window = number(header, f"attention.{part}_length_swa") or size
    windows = header.get(f"{header.get('general.architecture')}.attention.sliding_window_pattern")
    if not isinstance(windows, tuple):
        return [size] * layers
    return [in_window if window else size for window in windows[:layers]]


def _indexer_sizes(header: Mapping[str, Value]) -> list[tuple[int, int]]:
    """Return how many numbers of a token the indexer of sparse attention keeps in each layer as a key and as a value.

    It has one head. With latent attention it has no values; otherwise the leading dense layers have no indexer.
    """
    size, values = number(header, "attention.indexer.key_length"), _head_sizes(header, "value")
    if not size or number(header, "attention.key_length_mla"):
        return [(size, 0)] * len(values)
    dense = number(header, "leading_dense_block_count")
    return [(size, value) if at >= dense else (0, 0) for at, value in enumerate(values)]


def _state_numbers(header: Mapping[str, Value]) -> int:
    """Return how many numbers a sequence has in each recurrent layer: of convolutions, and of the state proper."""
    width = number(header, "embedding_length")
    if head := number(header, "wkv.head_size"):
        return width * (number(header, "token_shift_count") + head)
    if kernel := number(header, "shortconv.l_cache"):
        return width * (kernel - 1)
    inner, state = number(header, "ssm.inner_size"), number(header, "ssm.state_size")
    inputs = inner + 2 * number(header, "ssm.group_count") * state
    return max(number(header, "ssm.conv_kernel") - 1, 0) * inputs + state * inner
