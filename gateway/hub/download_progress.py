"""Progress of a download."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Bytes of a model on this machine, and of the file that is downloaded now."""

    share: float
    """Share of the model that is on this machine, from 0 to 1."""
    digest: str
    """Checksum of the file, as the hub has it."""
    total: int
    """Bytes of the file."""
    completed: int
    """Bytes of the file that are on this machine."""
