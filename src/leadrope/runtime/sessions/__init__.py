"""Sessions as files: found, resumed, exported, and kept without secrets."""
