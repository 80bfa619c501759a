"""Progress of loading or downloading a model: a bar on a terminal, log lines elsewhere."""

import logging
import sys
from typing import Protocol

logger = logging.getLogger(__name__)

LINES = 4
"""Log lines after the first one; each stands for an equal share."""


class Progress(Protocol):
    """Display of the share of a model that is there."""

    def show(self, share: float) -> None:
        """Display the share, 0 to 1. Called at every change."""

    def close(self) -> None:
        """End the display. Called once, at the end of loading."""


class ProgressBar:
    """A progress bar, removed when it is closed."""

    def __init__(self, name: str, verb: str) -> None:
        from tqdm import tqdm  # noqa: PLC0415 - needed on a terminal only

        self._bar = tqdm(total=100, desc=f"{verb} {name}", bar_format="{desc} {percentage:3.0f}% |{bar}|", leave=False)

    def show(self, share: float) -> None:
        """Move the bar."""
        self._bar.update(round(share * 100) - self._bar.n)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class ProgressLog:
    """One log line at the start and one for each quarter."""

    def __init__(self, name: str, verb: str) -> None:
        self._name = name
        self._verb = verb
        self._logged = -1

    def show(self, share: float) -> None:
        """Log a line, unless this quarter already has one."""
        if (quarter := int(share * LINES)) > self._logged:
            self._logged = quarter
            logger.info("%s %s: %d %%", self._verb, self._name, round(share * 100))

    def close(self) -> None:
        """Do nothing: log lines stay."""


def progress_for(name: str, *, verb: str = "loading") -> Progress:
    """Return a bar if standard error is a terminal, else a log. Both begin with the verb and the model's name."""
    return ProgressBar(name, verb) if sys.stderr.isatty() else ProgressLog(name, verb)
