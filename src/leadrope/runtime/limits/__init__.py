"""Clocks, budgets and memory of one run."""
