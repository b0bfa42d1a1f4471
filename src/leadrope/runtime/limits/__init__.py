"""Time, cost and memory limits of one run."""
