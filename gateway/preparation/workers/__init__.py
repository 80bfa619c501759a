"""A pool of processes for work on hostile input: limited in time, memory and output, and replaced when it fails."""
