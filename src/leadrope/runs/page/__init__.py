"""Renders one run as an HTML page."""
