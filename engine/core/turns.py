"""Which lane makes the next pass, and of which kind. Pure."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class Turn(Enum):
    """The two kinds of passes."""

    URGENT = "urgent"
    """Each pass gives somebody the next piece of an answer: decode rows."""
    BULK = "bulk"
    """Many tokens, where a little later is soon enough: prompts, texts to embed."""


class Demand(NamedTuple):
    """The kinds of passes for which a lane has work."""

    urgent: bool
    bulk: bool


class Turns:
    """Urgent and bulk passes alternate while there is demand for both: an urgent one waits for one bulk pass at most.

    In each kind the lanes with demand take turns: the one that was served longest ago is next, so that none starves.
    """

    def __init__(self, lanes: int) -> None:
        """Share passes among so many lanes."""
        self._served = {turn: [0] * lanes for turn in Turn}
        self._passes = 0
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
        """Return the lane that was served longest ago, and note that it is served now."""
        lane = min(lanes, key=served.__getitem__)
        self._passes += 1
        served[lane] = self._passes
        return lane
