"""Settings of a cluster."""

from typing import Self

from pydantic import BaseModel, Field, model_validator


class ClusterSettings(BaseModel):
    """Settings of a cluster of Ray Serve."""

    ray: bool = Field(
        False,
        description="start a cluster of Ray Serve on this machine and serve with it, for a try; needs the extra ray",
    )
    replicas: int = Field(
        1,
        ge=1,
        le=10_000,
        title="N",
        description="replicas of each model in a cluster, and the least with --max-replicas",
    )
    max_replicas: int | None = Field(
        None,
        ge=1,
        le=10_000,
        title="N",
        description="most replicas of each model in a cluster; as many run as the load needs; default: --replicas",
    )

    @model_validator(mode="after")
    def _at_least(self) -> Self:
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ValueError("--max-replicas should be at least --replicas")
        return self
