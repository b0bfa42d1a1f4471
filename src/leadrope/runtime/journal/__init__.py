"""The events of one run: numbered, folded into its result, and delivered to readers."""
