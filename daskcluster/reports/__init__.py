"""What people see of a fit: progress, tables, a page. Takes events, models and records only."""
