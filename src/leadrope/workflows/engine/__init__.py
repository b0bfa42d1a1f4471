"""One execution at work: which step is next, each unit carried out, its outcome kept once."""
