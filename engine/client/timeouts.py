"""Timeouts and restart backoff of the engine process. Times are arguments, in seconds; no clock is read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """Timeouts of the supervisor, in seconds."""

    load_timeout: float = 300.0
    """Maximum time without progress in loading."""
    stall_timeout: float = 60.0
    """Maximum time without progress while the engine has work."""
    answer_timeout: float = 5.0
    """Maximum time for the reply to a cancel or a query."""
    drain_timeout: float = 5.0
    """Maximum time for the process to exit after its stdin was closed; then it is killed."""
    kill_timeout: float = 5.0
    """Maximum time for a killed process to be gone; then it is abandoned."""
    backoff_first: float = 0.1
    """Wait before a restart; doubles with each process in sequence that did not work."""
    backoff_longest: float = 30.0
    """Maximum wait before a restart."""
    healthy_after: float = 60.0
    """Time of readiness after which a process without any request counts as one that worked."""

    def backoff(self, previous: float | None, *, steps: int, ready: float) -> float:
        """Return the wait before a restart. It grows only while no process works.

        Args:
            previous: Wait before the last restart; unset before the first one.
            steps: Number of steps that the dead process had finished.
            ready: Time that it had been ready.
        """
        if previous is None or steps or ready >= self.healthy_after:
            return self.backoff_first
        return min(2 * previous, self.backoff_longest)

    def deadline(self, *, ready: bool, progress_at: float, oldest_sent_at: float | None, now: float) -> float:
        """Return the time when a process without progress is killed.

        Args:
            ready: True if the model is loaded.
            progress_at: Time of the last progress: loading advanced, a step finished or went on, or the intake worked.
            oldest_sent_at: Time of sending of the oldest request in flight, or of a ping; unset if there is neither.
            now: Current time.
        """
        if not ready:
            return progress_at + self.load_timeout
        waiting_since = now if oldest_sent_at is None else oldest_sent_at
        return max(progress_at, waiting_since) + self.stall_timeout
