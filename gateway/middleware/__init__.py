"""Where clients misbehave: the hardened server, the request's scope, deadlines, event streams, errors as statuses."""
