"""Checks a workflow before anything runs."""
