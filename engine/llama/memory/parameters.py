"""The parameters of the context that generates."""

from typing import Final

import llama_cpp

from engine.config import EngineConfig
from engine.core.drafts.speculation import LENGTHS
from engine.core.step import SCORED_AT_ONCE
from engine.llama.attention import Attention
from engine.llama.memory.cell_types import CELL_TYPES

CELL_BLOCK: Final = 256
"""Tokens. llama.cpp rounds the cells of a slot up to a multiple of this."""
BATCH_ROWS: Final = 2048
"""The maximum number of rows of a plan."""


def all_cells(slots: int, context: int) -> int:
    """Return the number of cells of all slots."""
    return slots * -(-context // CELL_BLOCK) * CELL_BLOCK


def physical_batch(attention: Attention, slots: int) -> int:
    """Return the number of tokens that llama.cpp computes at once: at least one of each slot."""
    return max(attention.batch, slots)


def largest_step(attention: Attention, slots: int, *, aborts: bool) -> int:
    """Return the maximum number of tokens of a prompt step.

    Where a step cannot be aborted, it is that of a physical batch: a cancelled prompt is computed to the end of its
    step.
    """
    return BATCH_ROWS if aborts else physical_batch(attention, slots)


def context_params(
    config: EngineConfig, cells: int, attention: Attention, *, full_windows: bool, snapshots: int = 0
) -> llama_cpp.llama_context_params:
    """Return the parameters of a context with so many cells in all slots, in sliding-window layers if `full_windows`.

    Each slot has so many snapshots of its recurrent state: one before each of the last tokens.

    In a unified cache the slots share them. Otherwise each has its own part, so that it always finds room; neighbouring
    `seq_id`s with as many tokens share one weight pass, and each attends only to its own cells: a step of 16 rows with
    1,024 tokens each takes 440 ms instead of 610.
    """
    params: llama_cpp.llama_context_params = llama_cpp.llama_context_default_params()
    params.n_ctx = cells
    params.n_seq_max = config.slots
    params.n_batch, params.n_ubatch = BATCH_ROWS, physical_batch(attention, config.slots)
    params.n_outputs_max = config.slots + SCORED_AT_ONCE  # room for every row would be a gigabyte of logits
    params.n_outputs_max_per_seq = 1 + LENGTHS[-1]  # of sequences with a sampler
    params.flash_attn_type = attention.kind
    params.type_k, params.type_v = CELL_TYPES[config.kv_type_k].number, CELL_TYPES[config.kv_type_v].number
    params.kv_unified = config.kv_unified
    params.swa_full = full_windows
    params.n_rs_seq = snapshots
    return params
