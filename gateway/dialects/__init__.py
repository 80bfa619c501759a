"""What clients and models speak, translated to and from the engine's own words."""
