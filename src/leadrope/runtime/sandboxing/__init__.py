"""The sandbox of one run: its level, what is masked or read-only in it, and what it blocked."""
