"""The engine's child process: intake, step loop, pipes."""
