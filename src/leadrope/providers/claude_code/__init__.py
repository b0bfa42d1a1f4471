"""Claude Code: where its binary is, how it is called, what its lines mean."""
