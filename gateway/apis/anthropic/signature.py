"""Signatures of thinking blocks. They detect that a client has changed a block before it sent it back."""

from hashlib import blake2b

_PREFIX = "lg1-"
"""Begins every signature of this server. Other signatures were made by other servers."""
_PERSON = b"thinking block"


def sign(thinking: str) -> str:
    """Return the signature of a block: a digest without a secret, so that it is valid on every server."""
    return _PREFIX + blake2b(thinking.encode(errors="surrogatepass"), digest_size=24, person=_PERSON).hexdigest()


def is_changed(thinking: str, signature: str) -> bool:
    """Return True if this server signed another text. The signatures of other servers cannot be verified."""
    return signature.startswith(_PREFIX) and signature != sign(thinking)
