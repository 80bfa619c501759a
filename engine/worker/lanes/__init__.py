"""The kinds of requests that take turns in the step loop."""
