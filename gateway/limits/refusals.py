"""Refusals of requests beyond a limit, with OpenAI's codes and the headers that its clients obey."""

import math

from gateway.limits.moment import NANOSECONDS
from gateway.middleware.errors import MOST_WAIT, NO_RETRY, RATE_LIMIT, RETRY, Problem, RefusedError

EXCEEDED = "rate_limit_exceeded"
"""Code for a limit that the same request meets after a wait."""
QUOTA = "insufficient_quota"
"""Code, and type, for an exhausted budget. OpenAI's clients show it as a reason to change the plan."""
CONCURRENCY_WAIT = 1.0
"""Seconds to wait for the end of another request, whose time is unknown."""


def rate_exceeded(name: str, limit: int, nanoseconds: int) -> RefusedError:
    """Return the error for a rate of a minute.

    Args:
        name: name of the limit in `KeyLimits`.
        limit: its value.
        nanoseconds: time until the request would be admitted, if no other one is sent.
    """
    seconds, unit = nanoseconds / NANOSECONDS, name.partition("_")[0]
    message = f"The key's limit {name} is reached: {limit} {unit} in a minute. Try again in {math.ceil(seconds)} s."
    return _refused(message, name, EXCEEDED, seconds)


def concurrency_exceeded(limit: int) -> RefusedError:
    """Return the error for too many requests at the same time."""
    name = "concurrent_requests"
    message = f"The key's limit {name} is reached: {limit} of its requests run or wait. Try again when one has ended."
    return _refused(message, name, EXCEEDED, CONCURRENCY_WAIT)


def budget_exceeded(name: str, limit: int, remaining: int, asked: int, seconds: float) -> RefusedError:
    """Return the error for a budget that does not suffice for a request.

    Args:
        name: name of the limit in `KeyLimits`.
        limit: its value.
        remaining: tokens that are neither charged nor reserved.
        asked: tokens that the request may need.
        seconds: time until the next period.
    """
    message = (
        f"The key's budget {name} does not suffice: {remaining} of {limit} tokens remain, and the request may need "
        f"{asked}. A smaller max_tokens needs fewer. The budget is renewed in {math.ceil(seconds)} s."
    )
    return _refused(message, name, QUOTA, seconds)


def _refused(message: str, name: str, code: str, seconds: float) -> RefusedError:
    type_ = QUOTA if code == QUOTA else RATE_LIMIT
    return RefusedError(
        Problem(status=429, message=message, type=type_, code=code, param=name, headers=wait_headers(seconds))
    )


def wait_headers(seconds: float) -> dict[str, str]:
    """Return headers that name a wait exactly. A wait that OpenAI's clients do not accept is no reason to retry."""
    return {
        "retry-after": str(math.ceil(seconds)),
        "retry-after-ms": str(math.ceil(seconds * 1000)),
        **(RETRY if seconds <= MOST_WAIT else NO_RETRY),
    }
