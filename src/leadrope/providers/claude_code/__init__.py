"""The Claude Code provider: finding the binary, calling it, and decoding its output."""
