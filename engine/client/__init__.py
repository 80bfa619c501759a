"""Client of the engine in the gateway process: requests in flight, queries, and supervision of the child process."""
