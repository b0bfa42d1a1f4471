"""The ways into an execution, and what it is started with."""
