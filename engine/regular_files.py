"""Regular files, from which alone models and slots are read: a FIFO waits for its writer, a device may have no end."""

import errno
import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG


def require_regular(path: Path) -> None:
    """Check that a path is that of a regular file.

    Raises:
        OSError: it is not, or the file is not there.
    """
    mode = path.stat().st_mode
    if S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file")
