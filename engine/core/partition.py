"""The cache partition of a sequence: which others may reuse its cells."""

from hashlib import blake2b

from engine.request import AdapterSet


def partition_hash(name: str, adapters: AdapterSet = ()) -> str:
    """Return a hash of a cache partition and a set of adapters, because files name it and it may hold a secret.

    The text before the first bar is never a part of a name.
    """
    partition = f"{','.join(f'{id_}:{scale!r}' for id_, scale in adapters)}|{name}"
    return blake2b(partition.encode(), digest_size=16).hexdigest()
