"""Shows a workflow or an execution as a graph, picture, report or page."""
