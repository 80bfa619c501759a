"""Contents of GGUF files that are no models."""

from pathlib import Path

from engine.gguf.header import read_header

_PROJECTOR = "a projector for images or sound, which are not supported"
_OTHERS = {
    "adapter": "a LoRA adapter, which --lora adds to its model",
    "clip": _PROJECTOR,
    "mmproj": _PROJECTOR,
    "imatrix": "an importance matrix, which only serves to quantise a model",
}
"""Contents by the type or the architecture of a file."""


def other_content(path: Path) -> str:
    """Return what a GGUF file has instead of a model; an empty text if it seems to be a model, or is damaged."""
    try:
        header = read_header(path)
    except (OSError, ValueError):
        return ""
    kinds = (str(header.get(f"general.{key}")) for key in ("type", "architecture"))
    return next((_OTHERS[kind] for kind in kinds if kind in _OTHERS), "")
