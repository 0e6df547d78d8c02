"""A stream as a service: sources, a ledger of folded objects, stored state, and the loop around them."""
