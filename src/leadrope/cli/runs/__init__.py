"""`leadrope runs`, `top`, `stats`, `events`, `sessions` and `import-transcript`: what is kept of runs."""
