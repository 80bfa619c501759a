"""Fair division of an engine among clients: room in the queue, and turns."""
