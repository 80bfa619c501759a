"""Measurements of requests and of an engine, from the frames that arrive."""
