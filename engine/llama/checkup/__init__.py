"""Examinations of the machine, the build and a model. Each runs in a process of its own, which may crash."""
