"""Ray's own prefix router, for replicas of this project. It runs in Ray's processes, as it is."""

from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router import PrefixCacheAffinityRouter
from ray.serve.request_router import PendingRequest, ReplicaID, ReplicaResult, RunningReplica
from typing_extensions import override

from gateway.cluster.ingress import directory
from gateway.cluster.request import Placement


class RayPrefixRouter(PrefixCacheAffinityRouter):  # type: ignore[misc]  # Ray has no types
    """Routes prompts by Ray's rules, and requests that name a replica, such as those for metrics, to that one."""

    @override
    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        only = placement_of(pending_request)
        if only is not None and only.only:
            return [[one for one in candidate_replicas if one.replica_id.unique_id == only.replica]]
        ranks: list[list[RunningReplica]] = await super().choose_replicas(candidate_replicas, pending_request)
        return ranks

    @override
    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: ReplicaResult) -> None:
        only = placement_of(pending_request)
        if only is None or not only.only:
            super().on_request_routed(pending_request, replica_id, result)

    @override
    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        directory.update(self._deployment_id.name, {one.replica_id.unique_id: one.routing_stats for one in replicas})


class BoundedRayPrefixRouter(RayPrefixRouter):
    """Ray's router that leaves prefixes alone if two replicas differ by more than two requests."""

    @override
    def initialize_state(self) -> None:
        super().initialize_state(imbalanced_threshold=2)


def placement_of(request: PendingRequest | None) -> Placement | None:
    """Return the placement of a request, if it has one."""
    return next((one for one in request.args if isinstance(one, Placement)), None) if request else None
