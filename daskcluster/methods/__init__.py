"""Ways of clustering, one folder each: from the class that a user calls down to its compiled loops."""
