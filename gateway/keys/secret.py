"""Secrets of API keys: made here, shown once, and stored as hashes."""

import hashlib
import secrets

PREFIX = "sk-"
"""Beginning of every secret, as OpenAI's: clients and secret scanners know it."""
ENTROPY_BYTES = 32
"""Random bytes of a secret."""


def new_secret() -> str:
    """Return a new secret."""
    return PREFIX + secrets.token_urlsafe(ENTROPY_BYTES)


def new_id() -> str:
    """Return a new public id of a key. It is random, and says nothing about the secret."""
    return f"key_{secrets.token_hex(8)}"


def hash_of(secret: str) -> str:
    """Return the hash of a secret, as it is stored.

    SHA-256 without salt and without repetition: these slow down a search through likely passwords, and among 2²⁵⁶
    equally likely secrets there is nothing to search. A fast hash without salt can be looked up for each request.
    """
    return hashlib.sha256(secret.encode()).hexdigest()
