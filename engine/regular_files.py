"""Regular files, which alone are read: a FIFO waits for its writer, and a device may have no end."""

import errno
from pathlib import Path
from stat import S_ISREG


def require_regular(path: Path) -> None:
    """Check that a path is that of a regular file.

    Raises:
        OSError: it is not, or the file is not there.
    """
    if not S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
