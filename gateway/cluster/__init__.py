"""The gateway on several machines by Ray Serve: replicas of each model, and an ingress that forwards requests."""
