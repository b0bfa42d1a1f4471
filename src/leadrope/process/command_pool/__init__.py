"""Runs many commands under one guardian: a server inside the sandbox with one worker for each running command."""
