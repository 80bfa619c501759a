"""Child process of the engine: intake, step loop, pipes."""
