"""The events of one run: numbered, folded into its result, and handed to whoever reads them."""
