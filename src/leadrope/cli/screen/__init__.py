"""The terminal as a device: lines, tables, prompts, colours."""
