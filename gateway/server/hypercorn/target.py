"""Forms of a request's target, by RFC 9112, 3.2."""

import re
from typing import NamedTuple
from urllib.parse import urlsplit

_ADDRESS = rb"\[(?:[0-9A-Fa-f:.]+|[vV][0-9A-Fa-f]+\.[A-Za-z0-9\-._~!$&'()*+,;=:]+)\]"
_NAME = rb"(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})"
_AUTHORITY = re.compile(rb"(?:%b|%b*)(?::[0-9]{0,5})?" % (_ADDRESS, _NAME))
_CONNECT = re.compile(rb"(?:%b|%b+):[0-9]{1,5}" % (_ADDRESS, _NAME))
_ABSOLUTE = (b"http://", b"https://")


class Target(NamedTuple):
    """Target of a request."""

    path: bytes
    """Path with the query, or the target itself where it has no path (`*`, or the authority of CONNECT)."""
    host: bytes | None
    """Host that replaces the `Host` header (3.2.2); unset if the target does not name one."""


def is_authority(host: bytes) -> bool:
    """Return True for a host with or without a port. An empty one is valid (RFC 9110, 7.2)."""
    return _AUTHORITY.fullmatch(host) is not None


def parse_target(method: bytes, target: bytes) -> Target | None:
    """Return the parts of a target, or None if its form is invalid or does not fit the method."""
    if method == b"CONNECT":
        return Target(target, None) if _CONNECT.fullmatch(target) else None
    if target.startswith(b"/"):
        return Target(target, None)
    if target.lower().startswith(_ABSOLUTE):
        return _parse_absolute(target)
    return Target(target, None) if (method, target) == (b"OPTIONS", b"*") else None


def _parse_absolute(target: bytes) -> Target | None:
    try:
        url = urlsplit(target)
    except ValueError:
        return None
    if not url.netloc or url.netloc.startswith(b":") or not is_authority(url.netloc):
        return None
    path = url.path or b"/"
    return Target(path + (b"?" + url.query if url.query else b""), url.netloc)
