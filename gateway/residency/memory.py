"""Bytes of host and GPU memory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of host memory and of GPU memory."""

    host: int = 0
    """Bytes of host memory."""
    gpu: int = 0
    """Bytes of the memory of all GPUs."""

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(self.host + other.host, self.gpu + other.gpu)

    def __sub__(self, other: "Memory") -> "Memory":
        return Memory(self.host - other.host, self.gpu - other.gpu)

    def fits(self, room: "Memory") -> bool:
        """Return True if the room has these bytes. A memory that is not needed may be overdrawn."""
        return self.host <= max(room.host, 0) and self.gpu <= max(room.gpu, 0)

    def at_most(self, limit: "Memory") -> "Memory":
        """Return these bytes, or those of the limit where it is smaller. A limit that is overdrawn is 0."""
        return Memory(min(self.host, max(limit.host, 0)), min(self.gpu, max(limit.gpu, 0)))

    @property
    def deficit(self) -> "Memory":
        """Bytes that are missing, where the difference of two memories is negative."""
        return Memory(max(-self.host, 0), max(-self.gpu, 0))

    def __str__(self) -> str:
        """Return the bytes for a message."""
        parts = [f"{self.host / 2**30:.2f} GiB of host memory"] if self.host or not self.gpu else []
        parts += [f"{self.gpu / 2**30:.2f} GiB of GPU memory"] if self.gpu else []
        return " and ".join(parts)
