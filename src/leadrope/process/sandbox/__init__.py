"""The sandbox: inspects the machine, plans the bubblewrap command line of a run, and tests that it works."""
