"""Network building blocks shared by every layer above: which addresses are public, and how names are resolved."""
