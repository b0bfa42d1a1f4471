"""Questions from an execution to people."""
