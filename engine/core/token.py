"""What a draw gives."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Token:
    """A token drawn: its id, the bytes it stands for, and whether it ends the generation."""

    id: int
    piece: bytes
    ends: bool
