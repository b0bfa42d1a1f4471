"""Command lines, read with a grammar: which programs a line starts, where, and with which words."""
