"""A stream as a service: sources, a ledger of what was folded, and the loop around them."""
