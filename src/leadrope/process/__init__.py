"""Child processes: starting and ending them, reading their output, deadlines, the sandbox and the command pool."""
