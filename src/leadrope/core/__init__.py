"""Values: requests, events, results. No I/O, no clock, no process."""
