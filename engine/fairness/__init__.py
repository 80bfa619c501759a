"""Fairness among clients that wait, in the gateway and in the engine."""
