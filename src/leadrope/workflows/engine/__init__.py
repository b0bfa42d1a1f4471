"""Runs one execution: picks the next steps, runs each unit, and records every outcome exactly once."""
