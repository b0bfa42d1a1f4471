"""Texts about values: where a key stands in a file, what is wrong with a type, how something ended."""
