"""The gateway's side of the engine: frames, requests in flight, and the process itself."""
