"""Check that a model can generate as configured, by a simulated context: a start and `doctor` refuse the same."""

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama.memory.contexts import ContextShape, Simulate
from engine.llama.memory.parameters import CELL_BLOCK


def check_generating(config: EngineConfig, simulate: Simulate, *, recurrent: bool) -> None:
    """Check that the context of a model can generate.

    Args:
        config: the operator's choices.
        simulate: simulates a context.
        recurrent: whether the model has a recurrent state. It cannot forget tokens, although llama.cpp would move the
            positions of some of these models.

    Raises:
        LoadError: it has no KV cache, or its cells are to be shifted and cannot; or llama.cpp refuses the types of the
            cells.
    """
    moves = simulate(ContextShape(1, CELL_BLOCK)).moves_cells
    if moves is None:
        raise LoadError(f"{config.model} cannot generate text token by token: it has no KV cache")
    if config.context_shift and (recurrent or not moves):
        raise LoadError(f"{config.model} cannot shift its context: it has a recurrent state, or positions of its own")
