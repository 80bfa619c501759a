"""How long the engine's process may take, and what follows from it. No clock: times are given, in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """The supervisor's limits, in seconds.

    Attributes:
        load_timeout: how long loading may make no progress.
        stall_timeout: how long an engine with work may finish no step.
        answer_timeout: how long the answer to a cancel or a question may take.
        drain_timeout: how long a process that was told to end may take; then it is killed.
        backoff_first: wait before the first restart. It doubles with each one that follows,
        backoff_longest: up to this,
        healthy_after: until a process has served this long.
    """

    load_timeout: float = 300.0
    stall_timeout: float = 60.0
    answer_timeout: float = 5.0
    drain_timeout: float = 5.0
    backoff_first: float = 0.1
    backoff_longest: float = 30.0
    healthy_after: float = 60.0

    def backoff(self, previous: float | None, served: float) -> float:
        """How long to wait before a restart.

        Args:
            previous: the wait before the last restart; None if there was none.
            served: how long the process that died had been ready.
        """
        if previous is None or served >= self.healthy_after:
            return self.backoff_first
        return min(2 * previous, self.backoff_longest)

    def gives_up_at(self, *, ready: bool, progress_at: float, oldest: float | None, now: float) -> float:
        """When the process is given up if nothing comes of it until then.

        Args:
            ready: whether the model is loaded.
            progress_at: when loading advanced or a step was finished, last.
            oldest: when the oldest request that has not ended was sent; None if there is none.
            now: the time.
        """
        if not ready:
            return progress_at + self.load_timeout
        waiting_since = now if oldest is None else oldest
        return max(progress_at, waiting_since) + self.stall_timeout
