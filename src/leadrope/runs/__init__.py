"""Many runs: their store, their owners, and the one service that everything above calls."""
