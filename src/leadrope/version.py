"""The version, alone, so that `leadrope --version` imports nothing else."""

__version__ = "0.1.0"
