"""The ingress of a cluster: forwards requests to the replicas of their models, and answers for all of them."""
