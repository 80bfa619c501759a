"""Lanes of the step loop, one for each kind of request."""
