"""The universal event schema that several agents share, and the way from our events into it. Pure."""
