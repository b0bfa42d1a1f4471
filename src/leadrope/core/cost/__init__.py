"""Tokens and money: what was used, what it costs, and how it adds up. Pure."""
