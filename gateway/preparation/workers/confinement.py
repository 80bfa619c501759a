"""Confinement of the workers: what a template that escapes from its sandbox finds in its process."""

import ctypes
import sys
from typing import Final

_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38


def confine() -> bool:
    """Take the network and new privileges away from this process and its children, as far as the kernel allows it.

    A network namespace of its own has no interface that is up, not even a loopback. Sockets that are open stay open.
    Only root may make one alone; others need a user namespace with it, which some systems and containers forbid. The
    process must have one thread.

    Returns:
        True if the process has no network any more.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    confined = any(libc.unshare(flags) == 0 for flags in (_CLONE_NEWNET, _CLONE_NEWUSER | _CLONE_NEWNET))
    # A new user namespace ends this attribute, without which a process cannot write to its files in /proc.
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    return confined
