"""Saved agents, and the values of config.toml that need the machine to be checked."""
