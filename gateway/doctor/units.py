"""Numbers as people read them."""


def gigabytes(size: float) -> str:
    """Return bytes in GiB or MiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
