"""A trial of a new context: whether it computes, the size of its states, and how its sequences can go back."""

import time
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

from engine.core.kv.cell_changes import Removal
from engine.errors import EngineFault, LoadError
from engine.llama.batch import Batch
from engine.llama.cells import SlotCells
from engine.llama.context import LlamaContext
from engine.llama.model import LlamaModel
from engine.llama.state import State, StateSize, measure, measure_parts, read_state, state_bytes, write_state

_TRIALS = 3
_ROWS = 32
"""Enough for llama.cpp to choose the kernels of a prompt step."""


class CopySpeed(NamedTuple):
    """Number of cells that are copied out of a slot and back in the time of a computation."""

    per_token: float
    """Of one token of a prompt step of `Attention.chunk` tokens."""
    per_pass: float
    """Of a step with one row."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The findings."""

    whole: StateSize
    """The size of saved cells."""
    partial: StateSize | None = None
    """The size of a partial state; unset where copies can be trimmed, or where a whole state is as good."""
    drops: bool = True
    """True if the cell of the last step could be dropped."""
    copies: CopySpeed | None = None
    """The speed of copies; None if it was not measured."""


def probe(context: LlamaContext, batch: Batch, model: LlamaModel, cells: SlotCells) -> Probe:
    """Decode a small prompt and a single token in slot 0, and leave it empty.

    Raises:
        LoadError: the results are no logits.
    """
    rows = min(_ROWS, model.info.context)
    handle = context.handle
    _decode(context, batch, model, start=0, rows=rows)
    whole, partial = {rows: state_bytes(handle, 0)}, {rows: state_bytes(handle, 0, partial=True)}
    partly = model.traits.needs_checkpoints and not model.recurrent
    earlier = read_state(handle, 0, partial=True) if partly else None
    if model.traits.drops_steps:
        cells.keep(0)
    context.use_adapters(model.adapters.all)
    _decode(context, batch, model, start=rows, rows=1)
    whole[rows + 1], partial[rows + 1] = state_bytes(handle, 0), state_bytes(handle, 0, partial=True)
    drops = model.traits.max_draft > 0 and _drops(cells, rows)
    rewinds = earlier is not None and _rewinds(context, earlier, rows)
    context.remove(0, 0)
    if rewinds:
        return Probe(*measure_parts(whole, partial, model.window), drops=drops)
    return Probe(measure(whole), drops=drops)


def measure_copies(context: LlamaContext, batch: Batch, model: LlamaModel) -> CopySpeed:
    """Measure how fast cells are copied out of a slot and back, relative to steps. Uses slot 0.

    Args:
        context: a context whose slots have room for more than a chunk.
        batch: room for the chunk.
        model: the model.

    Raises:
        LoadError: the results are no logits.
    """
    tokens = model.attention.chunk  # slow devices take seconds for more
    context.use_adapters(())
    times = []
    for _ in range(1 + _TRIALS):
        context.remove(0, 0)
        prompt = _decode(context, batch, model, start=0, rows=tokens)
        row = _decode(context, batch, model, start=tokens, rows=1)
        began = time.perf_counter()
        write_state(context.handle, 0, read_state(context.handle, 0))
        times.append((prompt, row, time.perf_counter() - began))
    context.remove(0, 0)
    prompt, row, copy = map(median, zip(*times[1:], strict=True))  # the first time llama.cpp makes its graphs
    return CopySpeed(prompt / copy, row / copy * tokens)


def _drops(cells: SlotCells, rows: int) -> bool:
    """Return whether a slot can go back to so many rows, right after the step that computed the others."""
    try:
        cells.remove(Removal(0, rows))
    except EngineFault:
        return False
    return True


def _rewinds(context: LlamaContext, earlier: State, rows: int) -> bool:
    """Return whether a slot can go back to the partial state that it had after so many rows."""
    try:
        write_state(context.handle, 0, earlier, partial=True)
    except EngineFault:
        return False
    return context.try_remove(0, rows)


def _decode(context: LlamaContext, batch: Batch, model: LlamaModel, *, start: int, rows: int) -> float:
    """Decode a chunk and return the seconds that it took."""
    began = time.perf_counter()
    batch.clear()
    tokens = [at % model.info.vocabulary for at in range(start, start + rows)]
    batch.add(tokens, seq_id=0, start=start, output=True)
    context.probe(batch)
    if not np.isfinite(context.logits(1)).all():
        raise LoadError(f"this machine cannot run the model: a step of {rows} tokens gave no logits")
    return time.perf_counter() - began
