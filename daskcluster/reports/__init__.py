"""Reports on fits: progress, tables and pages, from events, models and records."""
