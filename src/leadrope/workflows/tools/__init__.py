"""Tools for steps: files, HTTP, mail, MCP, text and data."""
