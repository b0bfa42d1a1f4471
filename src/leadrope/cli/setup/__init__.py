"""`leadrope doctor`, `login`, `setup-token` and `completion`."""
