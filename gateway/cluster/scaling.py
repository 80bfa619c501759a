"""Number of replicas for a load: as many as keep slots and KV cache below a share of what they have.

Ray runs the policy in its controller, which has no other module of the gateway.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

TARGET = 0.8
"""Share of the slots, and of the KV cells, that should be in use. The rest takes what comes while a replica starts."""


def replicas_for(loads: Iterable[float], queued: float) -> int:
    """Return the number of replicas for a load.

    Args:
        loads: load of each replica: 1 if all of it is in use, more if requests wait.
        queued: load that no replica has yet.
    """
    return max(1, math.ceil(round((sum(loads) + queued) / TARGET, 6)))


def policy(context: Any) -> tuple[int, dict[str, Any]]:  # noqa: ANN401 - Ray's type is not for other modules
    """Return the number of replicas that Ray should run, and no state. Ray applies the limits of the deployment.

    A replica's load is the larger one of its queue (running and waiting sequences, for each that can run) and its
    tokens (active KV tokens, for each cell).
    """
    metrics: Mapping[str, Mapping[Any, float]] = context.aggregated_metrics or {}
    queue, tokens = metrics.get("queue", {}), metrics.get("tokens", {})
    loads = [max(load, tokens.get(replica, 0.0)) for replica, load in queue.items()]
    if not loads:
        return context.target_num_replicas, {}
    waiting = float(context.total_queued_requests or 0.0)
    slots = float(context.config.target_ongoing_requests)
    return replicas_for(loads, waiting / slots), {}
