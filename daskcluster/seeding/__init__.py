"""Choosing initial centres (public parameter ``init=``)."""
