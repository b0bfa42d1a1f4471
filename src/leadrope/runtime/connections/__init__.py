"""MCP servers of a run, and functions of the program that are offered to the agent like them."""
