"""Router of Ray Serve that puts a request where the ingress wants it, and otherwise on the less busy of two replicas.

Ray copies the classes of this module to other processes by value. Everything with state is therefore imported inside
the methods.
"""

import random
from collections.abc import Sequence
from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from typing_extensions import override


class ReplicaRouter(RequestRouter):
    """Ranks replicas for each request. Ray takes the one with fewest requests of a rank, and waits if all are full."""

    @override
    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the ranks: the wanted replica, if there is one, then two random ones of those that are ready."""
        from gateway.cluster.request import ANYWHERE, RESERVED, Placement  # noqa: PLC0415

        placement = ANYWHERE
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # otherwise Ray asks again at once
            placement = next((one for one in pending_request.args if isinstance(one, Placement)), ANYWHERE)
        wanted = [one for one in candidate_replicas if one.replica_id.unique_id == placement.replica]
        if placement.only:
            return [wanted] if wanted else []
        ready = [one for one in candidate_replicas if one.routing_stats.get("ready", 1.0)] or candidate_replicas
        two = random.sample(ready, min(2, len(ready)))
        return [[_WithReserve(one, RESERVED) for one in rank] for rank in (wanted, two) if rank]

    @override
    def update_replicas(self, replicas: Sequence[RunningReplica]) -> None:
        """Take over the running replicas, with what they reported, and publish them to this process."""
        from gateway.cluster.ingress import directory  # noqa: PLC0415

        super().update_replicas(list(replicas))
        reports = {one.replica_id.unique_id: one.routing_stats for one in replicas}
        directory.update(self._deployment_id.name, reports)


class _WithReserve:
    """A replica, some of whose places are not for this request. Ray compares its requests with the maximum.

    Ray knows of a request that it sends a moment later, so that a burst may take some of these places.
    """

    def __init__(self, replica: RunningReplica, reserved: int) -> None:
        self._replica = replica
        self.max_ongoing_requests = replica.max_ongoing_requests - reserved

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all else is that of the replica
        return getattr(self._replica, name)
