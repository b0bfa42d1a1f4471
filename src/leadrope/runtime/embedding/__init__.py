"""Code of the program that uses leadrope: its keywords, hooks and functions."""
