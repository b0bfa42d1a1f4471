"""Parses command lines: which programs a line starts, where, and with which words."""
