"""The language of workflow files: Markdown, values, templates and conditions. Pure."""
