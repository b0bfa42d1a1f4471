"""The terminal program. One file per command group, imported when the command is used."""
