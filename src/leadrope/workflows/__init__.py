"""Workflows: one model with two formats, Markdown and a canvas graph, and the rules for what may run next."""
