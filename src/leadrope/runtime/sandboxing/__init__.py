"""The sandbox of one run: which level it gets, what is masked or read-only in it, and what it held back."""
