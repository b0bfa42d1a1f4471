"""The machine: child processes, their lines, their clocks and their end. Knows no agent and no protocol."""
