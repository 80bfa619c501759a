"""How far the model is loaded: a bar on a terminal, lines of the log elsewhere."""

import logging
import sys
from typing import Protocol

logger = logging.getLogger(__name__)

LINES = 4


class Progress(Protocol):
    """Is told the share that is loaded, 0 to 1, whenever it changes."""

    def show(self, share: float) -> None:
        """Tell of a share."""

    def close(self) -> None:
        """Nothing more is to be told."""


class Bar:
    """A bar, gone once it is closed."""

    def __init__(self, name: str) -> None:
        from tqdm import tqdm  # noqa: PLC0415 - only a terminal needs it

        self._bar = tqdm(total=100, desc=f"loading {name}", bar_format="{desc} {percentage:3.0f}% |{bar}|", leave=False)

    def show(self, share: float) -> None:
        """Move the bar."""
        self._bar.update(round(share * 100) - self._bar.n)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class Lines:
    """A line at the start and one for each quarter."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told = -1

    def show(self, share: float) -> None:
        """Write a line, unless there was one for this quarter."""
        if (quarter := int(share * LINES)) > self._told:
            self._told = quarter
            logger.info("loading %s: %d %%", self._name, round(share * 100))

    def close(self) -> None:
        """Nothing to do."""


def progress_of(name: str) -> Progress:
    """What suits standard error."""
    return Bar(name) if sys.stderr.isatty() else Lines(name)
