"""Policy files: read, checked with file and line, and gathered into layers."""
