"""Checks of a workflow before anything runs."""
