"""Translation: what an agent program wants to hear, and what it says, as our own words."""
