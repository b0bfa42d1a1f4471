"""`leadrope approvals`."""
