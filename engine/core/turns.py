"""Turns among lanes: selects the lane of the next step, and the kind of step. Pure."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class Turn(Enum):
    """The kinds of steps."""

    URGENT = "urgent"
    """Decode rows. Each step yields the next tokens of an answer."""
    BULK = "bulk"
    """Prompts and texts to embed: many tokens, which can wait for a step."""


class Demand(NamedTuple):
    """The kinds of steps for which a lane has work."""

    urgent: bool
    """True if there is work for an urgent step."""
    bulk: bool
    """True if there is work for a bulk step."""


NO_DEMAND = Demand(urgent=False, bulk=False)


class Turns:
    """Alternates urgent and bulk steps while there is demand for both: an urgent step waits for at most one bulk step.

    Among the lanes with demand for a kind, the least recently served one is next, so that no lane starves.
    """

    def __init__(self, lanes: int) -> None:
        """Divide steps among a number of lanes."""
        self._served = {turn: [0] * lanes for turn in Turn}
        self._steps = 0
        self._urgent_last = False

    def next(self, demands: Sequence[Demand]) -> list[Turn | None]:
        """Return a turn for one lane and None for all others, in the order of their demands."""
        urgent = [lane for lane, demand in enumerate(demands) if demand.urgent]
        bulk = [lane for lane, demand in enumerate(demands) if demand.bulk]
        self._urgent_last = bool(urgent) and not (bulk and self._urgent_last)
        turns: list[Turn | None] = [None] * len(demands)
        if urgent or bulk:
            turn, lanes = (Turn.URGENT, urgent) if self._urgent_last else (Turn.BULK, bulk)
            turns[self._serve(lanes, self._served[turn])] = turn
        return turns

    def _serve(self, lanes: list[int], served: list[int]) -> int:
        """Return the least recently served lane and record that it is served now."""
        lane = min(lanes, key=served.__getitem__)
        self._steps += 1
        served[lane] = self._steps
        return lane
