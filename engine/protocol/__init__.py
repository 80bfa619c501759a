"""The frames between the gateway's process and the engine's."""
