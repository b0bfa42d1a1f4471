"""Workflows: one model with two faces, Markdown and a canvas graph, and what may run next in it."""
