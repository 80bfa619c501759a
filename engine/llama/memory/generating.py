"""Check that a model can generate as configured, by a simulated context: a start and `doctor` refuse the same."""

from dataclasses import replace

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama.attention import Attention
from engine.llama.memory.parameters import CELL_BLOCK, context_params
from engine.llama.memory.simulation import Simulation


def check_generating(config: EngineConfig, attention: Attention, simulation: Simulation, *, recurrent: bool) -> None:
    """Check that the context of a model can generate.

    Args:
        config: the operator's choices.
        attention: the attention implementation.
        simulation: simulates the context.
        recurrent: whether the model has a recurrent state. It cannot forget tokens, although llama.cpp would move the
            positions of some of these models.

    Raises:
        LoadError: it has no KV cache, or its cells are to be shifted and cannot; or llama.cpp refuses the types of the
            cells.
    """
    params = context_params(replace(config, slots=1), CELL_BLOCK, attention, full_windows=False)
    moves = simulation.simulate(params).moves_cells
    if moves is None:
        raise LoadError(f"{config.model} cannot generate text token by token: it has no KV cache")
    if config.context_shift and (recurrent or not moves):
        raise LoadError(f"{config.model} cannot shift its context: it has a recurrent state, or positions of its own")
