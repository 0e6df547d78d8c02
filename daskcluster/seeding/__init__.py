"""Methods to choose initial centres (parameter ``init``)."""
