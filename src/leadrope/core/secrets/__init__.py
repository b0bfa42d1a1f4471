"""Secrets: which values are some, and how texts and JSON are cleaned of them. Pure."""
