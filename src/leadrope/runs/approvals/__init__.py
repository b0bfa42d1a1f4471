"""Approvals: everything that a person is asked, by runs and by steps of workflows, in one table."""
