"""The sandbox: what a run needs of the machine, looked up, planned as a bubblewrap command line, and tried."""
