"""`leadrope policy` and `leadrope trust`."""
