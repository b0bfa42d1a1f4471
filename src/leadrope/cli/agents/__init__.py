"""`leadrope agents` and `leadrope connections`."""
