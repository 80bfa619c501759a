"""Names of models on the hub, as the operator writes them."""

import re
from dataclasses import dataclass, replace
from typing import Self

SCHEME = "hf:"
HOSTS = ("hf.co", "huggingface.co")
"""Hosts of the hub, in names of models for Ollama's clients."""
_PART = r"\w(?:[\w.-]*\w)?"
_REFERENCE = re.compile(
    rf"{SCHEME}(?P<repository>{_PART}/{_PART})(?::(?P<quant>{_PART})|/(?P<file>[^\s:\\]+\.gguf))?", re.ASCII
)
_FORBIDDEN = ("--", "..", "//", "/./")
"""The hub has no repository with the first two in its name; the others are no parts of a path there."""
_MOST_BYTES = 240
"""Bytes of a reference. File systems have names of up to 255, and the cache's contain a repository's."""


@dataclass(frozen=True, slots=True)
class HubReference:
    """A model on the hub: `hf:user/repo`, `hf:user/repo:quant` or `hf:user/repo/path/file.gguf`."""

    repository: str
    """Name of the repository, `user/repo`."""
    quant: str | None = None
    """Quantisation, such as `Q4_K_M`; unset takes the default."""
    file: str | None = None
    """Path of the file in the repository; unset chooses by `quant`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the reference that a text has.

        Raises:
            ValueError: It has none. The error is a phrase for the operator.
        """
        match = _REFERENCE.fullmatch(text)
        if match is None or any(part in text for part in _FORBIDDEN):
            raise ValueError("should be hf:user/repo, hf:user/repo:quant or hf:user/repo/file.gguf")
        if len(text.encode(errors="replace")) > _MOST_BYTES:
            raise ValueError(f"should be hf:user/repo of at most {_MOST_BYTES} bytes")
        return cls(match["repository"], match["quant"], match["file"])

    @property
    def name(self) -> str:
        """Default name of the model for clients: that of the repository."""
        return self.repository.partition("/")[2]

    @property
    def names(self) -> frozenset[str]:
        """Names of the model for clients, also as Ollama's have them."""
        quants = {self.quant} if self.quant is None else {self.quant, self.quant.lower(), self.quant.upper()}
        bare = {str(replace(self, quant=quant)).removeprefix(SCHEME) for quant in quants}
        return frozenset(f"{place}{name}" for name in bare for place in ("", SCHEME, *(f"{host}/" for host in HOSTS)))

    def __str__(self) -> str:
        if self.file is not None:
            return f"{SCHEME}{self.repository}/{self.file}"
        return f"{SCHEME}{self.repository}" + (f":{self.quant}" if self.quant else "")
