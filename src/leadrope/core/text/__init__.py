"""Texts and values: YAML with its places, lines of tables, what an eye cannot see, where and how a value is wrong."""
