"""What steps work with: files, HTTP, mail, MCP, text and data."""
