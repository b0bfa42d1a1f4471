"""The gate: every tool call is held until a rule or a person has said yes."""
