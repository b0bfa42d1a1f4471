"""Parts of a request that have a form of their own, checked when they are made."""
