"""Detects what a repository would run by itself, and whether the user trusts exactly that."""
