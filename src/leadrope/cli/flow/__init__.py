"""`leadrope flow`."""
