"""Runs in the store: their tables, values and SQL."""
