"""`leadrope run`, `chat` and `demo`: one run at the terminal."""
